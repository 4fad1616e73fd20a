//! Requests of btrfs on a real one, in a file: they make, copy and remove whole trees through a directory that is open for
//! reading, whatever mounts and Landlock say. The numbers alone are tried everywhere (`launcher_streams`).

use pinfold_conformance::start::{own_uid, uids};
use pinfold_conformance::world::{LANDLOCK, NAMESPACE, World, assert_prints, ended};

/// Makes a tree outside, copies one into the workspace, makes one read-only, removes one.
const REQUESTS: &str = "
import errno, fcntl, os, struct, sys
out, ws = sys.argv[1:]
def request(directory, number, argument):
    try: fcntl.ioctl(os.open(directory, os.O_RDONLY), number, bytearray(argument)); print('done', end=' ')
    except OSError as error: print(errno.errorcode[error.errno], end=' ')
def tree(name, source=0):
    return struct.pack('=qQQ32x4040s', source, 0, 0, name)
request(out, 0x50009418, tree(b'made'))
request(ws, 0x50009417, tree(b'copy', os.open(out + '/kept', os.O_RDONLY)))
request(out + '/kept', 0x4008941a, struct.pack('=Q', 2))
request(out, 0x5000943f, tree(b'victim'))
print(*sorted(os.listdir(out)), *os.listdir(ws))";

/// Mounts the file system in a mount namespace of its own, makes two trees, and becomes the user.
const INSIDE: &str = "set -e
base=$1 uid=$2; shift 2
mount -o loop,user_subvol_rm_allowed $base/image $base/mount
mkdir -p $base/mount/out $base/mount/ws
for name in kept victim; do [ -d $base/mount/out/$name ] || btrfs -q subvolume create $base/mount/out/$name; done
chown -R $uid:$uid $base/mount
exec setpriv --reuid $uid --regid $uid --clear-groups \"$@\"";

#[test]
fn trees_of_a_real_btrfs_are_neither_made_nor_copied_nor_removed() {
    let known = std::fs::read_to_string("/proc/filesystems").expect("a list");
    if own_uid() != 0 || !known.contains("btrfs") {
        // Only root mounts a file, and only a kernel with btrfs; the machine that CI runs on is one.
        return;
    }
    for uid in uids() {
        let world = World::new(uid);
        let (base, out, ws) = (world.path(""), world.path("mount/out"), world.path("mount/ws"));
        std::fs::create_dir(world.path("mount")).expect("a directory");
        let image = std::fs::File::create(world.path("image")).expect("a file");
        image.set_len(128 << 20).expect("its size");
        let made = std::process::Command::new("mkfs.btrfs").args(["-q", &world.path("image")]).output();
        assert!(made.expect("mkfs.btrfs is there (btrfs-progs)").status.success());
        let uid = uid.to_string();
        let run = |words: &[&str]| {
            let mut command = std::process::Command::new("unshare");
            command.args(["-m", "--propagation", "private", "sh", "-c", INSIDE, "sh", &base, &uid]).args(words);
            ended(command.current_dir("/"))
        };
        let argv = ["/usr/bin/python3", "-c", REQUESTS, &out, &ws];
        let launcher = world.path("bin/pinfold-run");
        for wall in [NAMESPACE, LANDLOCK] {
            for more in [&[][..], &["--deny-metadata"]] {
                let plan = [&[launcher.as_str(), "--spec", "1"], wall, more, &["--"], &argv].concat();
                assert_prints("EPERM EPERM EPERM EPERM kept victim\n", &run(&plan));
            }
        }
        assert_prints("done done done done kept made copy\n", &run(&argv));
    }
}
