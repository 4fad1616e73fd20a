//! Reaching the network, and the socket families that reach further than it.

use crate::{Attempt, Target, attempt, uring};
use libc::{AF_INET, AF_INET6, O_RDWR, SOCK_DGRAM, SOCK_RAW, SOCK_STREAM};
use pinfold_conformance::errno::{Act, Errno};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{in_child, open, read, write, write_all};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("net-tcp-connect", "connect by TCP to a listener outside", |t| {
        connect_and_send(t, socket(AF_INET, SOCK_STREAM, 0)?)
    }),
    attempt("net-tcp-connect-mapped", "connect by TCP to ::ffff:127.0.0.1", |t| {
        let fd = socket(AF_INET6, SOCK_STREAM, 0)?;
        let mut address = [0u8; 28];
        address[0..2].copy_from_slice(&(AF_INET6 as u16).to_ne_bytes());
        address[2..4].copy_from_slice(&t.context.victim.tcp.to_be_bytes());
        address[18..24].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
        sys!(libc::SYS_connect, fd, &address[..], 28usize)?;
        write_all(fd, t.text())
    }),
    attempt("net-mptcp-connect", "connect by MPTCP", |t| {
        connect_and_send(t, socket(AF_INET, SOCK_STREAM, libc::IPPROTO_MPTCP)?)
    }),
    attempt("net-sctp", "open an SCTP socket", |_| socket(AF_INET, SOCK_STREAM, libc::IPPROTO_SCTP).map(drop)),
    attempt("net-tcp-fastopen-send", "send with MSG_FASTOPEN", |t| {
        let fd = socket(AF_INET, SOCK_STREAM, 0)?;
        let address = loopback(t.context.victim.tcp);
        sys!(libc::SYS_sendto, fd, t.text(), t.text().len(), libc::MSG_FASTOPEN, &address[..], 16usize).map(drop)
    }),
    attempt("net-tcp-fastopen-connect", "connect with TCP_FASTOPEN_CONNECT", |t| {
        let fd = socket(AF_INET, SOCK_STREAM, 0)?;
        sys!(libc::SYS_setsockopt, fd, libc::IPPROTO_TCP, 30, read(&1i32), 4)?;
        connect_and_send(t, fd)
    }),
    attempt("net-uring-connect", "connect by io_uring", |t| {
        let fd = socket(AF_INET, SOCK_STREAM, 0)?;
        let address = loopback(t.context.victim.tcp);
        uring::submit(&uring::Entry { opcode: 16, fd, bytes: Some(&address), offset: 16, ..Default::default() })?;
        write_all(fd, t.text())
    }),
    attempt("net-tcp-bind", "bind a TCP port", |_| bind(socket(AF_INET, SOCK_STREAM, 0)?)),
    attempt("net-tcp-listen", "listen without binding", |_| {
        sys!(libc::SYS_listen, socket(AF_INET, SOCK_STREAM, 0)?, 1).map(drop)
    }),
    attempt("net-udp-send", "send by UDP to a listener outside", |t| {
        let fd = socket(AF_INET, SOCK_DGRAM, 0)?;
        let address = loopback(t.context.victim.udp);
        sys!(libc::SYS_sendto, fd, t.text(), t.text().len(), 0, &address[..], 16usize).map(drop)
    }),
    attempt("net-udp-bind", "bind a UDP port", |_| bind(socket(AF_INET, SOCK_DGRAM, 0)?)),
    attempt("net-icmp", "open a ping socket", |_| socket(AF_INET, SOCK_DGRAM, libc::IPPROTO_ICMP).map(drop)),
    attempt("net-raw", "open a raw socket", |_| socket(AF_INET, SOCK_RAW, libc::IPPROTO_ICMP).map(drop)),
    attempt("net-packet", "open a packet socket", |_| socket(libc::AF_PACKET, SOCK_RAW, 0).map(drop)),
    attempt("net-netlink", "open a routing netlink socket", |_| socket(libc::AF_NETLINK, SOCK_RAW, 0).map(drop)),
    attempt("net-netlink-usersock", "open a netlink socket to other processes", |_| {
        const NETLINK_USERSOCK: i32 = 2;
        socket(libc::AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK).map(drop)
    }),
    attempt("net-vsock", "open a VM socket", |_| socket(libc::AF_VSOCK, SOCK_STREAM, 0).map(drop)),
    attempt("net-vsock-high-bits", "open a VM socket by a family with high bits", |_| {
        // The kernel looks at 32 bits of it; a filter that compares 64 sees another number.
        sys!(libc::SYS_socket, 1u64 << 32 | libc::AF_VSOCK as u64, SOCK_STREAM, 0).map(drop)
    }),
    attempt("net-alg", "open a kernel crypto socket", |_| socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0).map(drop)),
    attempt("net-tun", "open /dev/net/tun", |_| open(c"/dev/net/tun", O_RDWR).map(drop)),
];

fn socket(family: i32, kind: i32, protocol: i32) -> Result<i32, Errno> {
    sys!(libc::SYS_socket, family, kind | libc::SOCK_CLOEXEC, protocol).map(|fd| fd as i32)
}

/// `struct sockaddr_in` of 127.0.0.1.
fn loopback(port: u16) -> [u8; 16] {
    let mut address = [0u8; 16];
    address[0..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    address
}

fn connect_and_send(t: &Target, fd: i32) -> Act {
    let address = loopback(t.context.victim.tcp);
    sys!(libc::SYS_connect, fd, &address[..], 16usize)?;
    write_all(fd, t.text())
}

fn bind(fd: i32) -> Act {
    let address = loopback(0);
    sys!(libc::SYS_bind, fd, &address[..], 16usize).map(drop)
}

/// A TCP server on loopback and its client, both inside.
pub(crate) fn talk_to_self() -> Act {
    let server = socket(AF_INET, SOCK_STREAM, 0)?;
    bind(server)?;
    sys!(libc::SYS_listen, server, 4)?;
    let mut address = [0u8; 16];
    let mut length = 16u32;
    sys!(libc::SYS_getsockname, server, &mut address[..], write(&mut length))?;
    in_child(|| {
        let client = socket(AF_INET, SOCK_STREAM, 0)?;
        sys!(libc::SYS_connect, client, &address[..], 16usize)?;
        write_all(client, b"x")
    })?;
    let peer = sys!(libc::SYS_accept4, server, 0, 0, 0)?;
    let mut byte = [0u8; 1];
    sys!(libc::SYS_read, peer, &mut byte[..], 1usize).map(drop)
}
