//! The server on loopback: who is let in, and who can keep others out.

use crate::Claim;
use crate::wire::Wire;
use pinfold_conformance::walls::{Walls, expect, expect_equal, printed};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub(crate) const CLAIMS: &[Claim] = &[
    ("http-needs-token-host-and-no-origin", admitted),
    ("who-has-no-token-keeps-nobody-out", strangers),
    ("what-is-idle-is-closed", idle),
    ("roots-of-one-client-are-not-for-all", shared_roots),
];

const SERVED: &[&str] = &["--mode", "workspace-write", "--http", "0"];

/// A server on loopback: its address, and the file of its token.
pub(crate) struct Http {
    child: Child,
    port: u16,
    pub(crate) token: PathBuf,
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts one with these options.
pub(crate) fn serve(walls: &Walls, options: &[&str]) -> Result<Http, String> {
    let pinfold = walls.pinfold();
    let mut command = walls.plain(&[pinfold.as_os_str()]);
    command.arg("mcp").args(options).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let mut lines = BufReader::new(child.stderr.take().ok_or("no stderr")?).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("serving"))).ok_or("nothing was said")?;
    std::thread::spawn(move || lines.for_each(drop));
    let port =
        line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).and_then(|port| port.parse().ok());
    let token = line.split('"').nth(1).map(PathBuf::from);
    Ok(Http { child, port: port.ok_or_else(|| line.clone())?, token: token.ok_or(line)? })
}

fn post(port: u16, headers: &[(&str, &str)], body: &Value) -> Result<String, String> {
    let body = body.to_string();
    let mut request = format!(
        "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(|e| e.to_string())?;
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    // A stream of events may stay open; what has come by then is enough.
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..count]);
        if answer.windows(12).any(|window| window == b"\"serverInfo\"") {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn admitted(walls: &Walls) -> Result<(), String> {
    let http = serve(walls, SERVED)?;
    let token = std::fs::read_to_string(&http.token).map_err(|e| e.to_string())?;
    let bearer = format!("Bearer {token}");
    let host = format!("127.0.0.1:{}", http.port);
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}});
    let status = |headers: &[(&str, &str)]| -> Result<String, String> {
        let answer = post(http.port, headers, &initialize)?;
        Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
    };
    expect_equal(status(&[("Host", &host), ("Authorization", &bearer)])?.as_str(), "200")?;
    expect_equal(status(&[("Host", &host)])?.as_str(), "401")?;
    expect_equal(status(&[("Host", &host), ("Authorization", "Bearer wrong")])?.as_str(), "401")?;
    expect_equal(status(&[("Host", "evil.example"), ("Authorization", &bearer)])?.as_str(), "403")?;
    expect_equal(
        status(&[("Host", &host), ("Origin", "https://evil.example"), ("Authorization", &bearer)])?.as_str(),
        "403",
    )?;
    expect_equal(status(&[("Host", &host), ("Origin", "null"), ("Authorization", &bearer)])?.as_str(), "403")?;
    // From inside: the port can be reached, the token cannot.
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let look = format!("cat {}", http.token.display());
    let said = wire.bash(&look)?;
    expect(!said.contains(&token), "a command read the token")?;
    printed(&Walls::finish(&mut walls.plain(&["bash", "-c", &look]))?)?;
    let words = std::fs::read(format!("/proc/{}/cmdline", http.child.id())).map_err(|e| e.to_string())?;
    expect(!String::from_utf8_lossy(&words).contains(&token), "the token is among the words")?;
    let reach = wire.bash(&format!("exec 3<>/dev/tcp/127.0.0.1/{}; printf 'POST /mcp HTTP/1.1\\r\\nHost: {host}\\r\\nContent-Length: 0\\r\\n\\r\\n' >&3; head -n 1 <&3", http.port))?;
    expect(reach.contains("401"), reach)
}

/// A request with everything that it needs, over a connection that stays open; returns the status.
fn ask(stream: &mut TcpStream, http: &Http, bearer: &str) -> Result<String, String> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}).to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: {bearer}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        http.port,
        body.len()
    );
    stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    // The body is in chunks; the last one is empty.
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) => return Err(format!("{error}: {}", String::from_utf8_lossy(&answer))),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.split(' ').nth(1).map(str::to_owned).ok_or(answer)
}

fn connect(http: &Http, patience: Duration) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(("127.0.0.1", http.port)).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(patience)).map_err(|e| e.to_string())?;
    Ok(stream)
}

/// So many at once would have been all that the server had.
const CROWD: usize = 400;

fn strangers(walls: &Walls) -> Result<(), String> {
    let http = serve(walls, SERVED)?;
    let bearer = format!("Bearer {}", std::fs::read_to_string(&http.token).map_err(|e| e.to_string())?);
    let patience = Duration::from_secs(5);
    let mut client = connect(&http, patience)?;
    expect_equal(ask(&mut client, &http, &bearer)?.as_str(), "200")?;
    let mut crowd = Vec::new();
    for number in 0..CROWD {
        let mut stranger = connect(&http, patience)?;
        // Some say nothing, some begin and never end, and some have a wrong token and a body that never comes.
        let said = match number % 3 {
            0 => "",
            1 => "POST /mcp HTTP/1.1\r\nHost: x\r\n",
            _ => "POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\nContent-Length: 1000000\r\n\r\n",
        };
        // One that was sent away already is not heard.
        let _ = stranger.write_all(said.as_bytes());
        crowd.push(stranger);
    }
    // A client that comes now, and the one that was there before, are served at once.
    let begun = Instant::now();
    expect_equal(ask(&mut connect(&http, patience)?, &http, &bearer)?.as_str(), "200")?;
    expect_equal(ask(&mut client, &http, &bearer)?.as_str(), "200")?;
    expect(begun.elapsed() < patience, format!("{:?}", begun.elapsed()))?;
    // The first of the crowd, which said nothing, had to go; the last one that did waits.
    expect_equal(crowd[0].read(&mut [0; 16]).map_err(|e| e.to_string())?, 0)?;
    let quiet = crowd.iter_mut().rev().find(|it| it.peek(&mut [0; 1]).is_err());
    expect(quiet.is_some(), "nobody of the crowd is left waiting")?;
    // Who is wrong is told so, and nothing more is heard.
    let mut wrong = connect(&http, patience)?;
    expect_equal(ask(&mut wrong, &http, "Bearer wrong")?.as_str(), "401")?;
    expect_equal(wrong.read(&mut [0; 16]).map_err(|e| e.to_string())?, 0)
}

fn idle(walls: &Walls) -> Result<(), String> {
    let http = serve(walls, SERVED)?;
    let bearer = format!("Bearer {}", std::fs::read_to_string(&http.token).map_err(|e| e.to_string())?);
    let patience = Duration::from_secs(30);
    let mut client = connect(&http, patience)?;
    expect_equal(ask(&mut client, &http, &bearer)?.as_str(), "200")?;
    let (silent, mut slow) = (connect(&http, patience)?, connect(&http, patience)?);
    slow.write_all(b"POST /mcp HTTP/1.1\r\nHost: x\r\n").map_err(|e| e.to_string())?;
    let begun = Instant::now();
    for (name, mut stream) in [("silent", silent), ("slow", slow), ("client", client)] {
        let mut rest = Vec::new();
        // What is closed with a complaint is closed too.
        stream.read_to_end(&mut rest).map_err(|e| format!("{name}: {e}"))?;
        expect(begun.elapsed() < Duration::from_secs(20), format!("{name}: {:?}", begun.elapsed()))?;
        expect(begun.elapsed() > Duration::from_secs(5), format!("{name} had no time: {:?}", begun.elapsed()))?;
    }
    Ok(())
}

fn shared_roots(walls: &Walls) -> Result<(), String> {
    let pinfold = walls.pinfold();
    let below = walls.fixture.out();
    let mut command = walls.plain(&[pinfold.as_os_str(), "mcp".as_ref(), "--http".as_ref(), "0".as_ref()]);
    let refused = Walls::finish(command.arg("--roots-below").arg(below))?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    expect_equal(refused.status.code(), Some(2))?;
    expect(said.contains("--roots-below") && said.contains("--http"), said)
}
