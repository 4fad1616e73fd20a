//! A client that speaks raw lines, so that it can also say what no client says. Every line that it hears must be one message.

use pinfold_conformance::walls::Walls;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Much longer than anything takes; what waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The revision that still has a handshake.
pub(crate) const HANDSHAKE: &str = "2025-11-25";
/// The revision without.
pub(crate) const CURRENT: &str = "2026-07-28";

/// A server and a client at its streams.
pub(crate) struct Wire {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    paused: Arc<AtomicBool>,
    /// The number of the latest request.
    pub(crate) next: u64,
    /// Requests and notifications of the server that were met on the way.
    pub(crate) met: Vec<Value>,
    /// What goes into the parameters of each request.
    meta: Option<Value>,
}

type Result<T> = std::result::Result<T, String>;

impl Wire {
    /// Starts a server in the workspace.
    pub(crate) fn start(walls: &Walls, options: &[&str]) -> Result<Wire> {
        Wire::start_by(walls, &[], options)
    }

    /// The same by a program that becomes the server.
    fn start_by(walls: &Walls, by: &[&str], options: &[&str]) -> Result<Wire> {
        let pinfold = walls.pinfold();
        let mut words: Vec<&std::ffi::OsStr> = by.iter().map(std::ffi::OsStr::new).collect();
        words.extend([pinfold.as_os_str(), "mcp".as_ref()]);
        words.extend(options.iter().map(|word| std::ffi::OsStr::new(*word)));
        let mut command = walls.plain(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let out = child.stdout.take().ok_or("no output")?;
        let (tell, lines) = channel();
        let paused = Arc::new(AtomicBool::new(false));
        let pause = Arc::clone(&paused);
        std::thread::spawn(move || {
            let mut out = BufReader::with_capacity(1 << 16, out);
            loop {
                let mut line = Vec::new();
                while pause.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                match out.read_until(b'\n', &mut line) {
                    Ok(1..) if tell.send(line).is_ok() => {}
                    _ => return,
                }
            }
        });
        let input = child.stdin.take();
        Ok(Wire { child, input, lines, paused, next: 0, met: Vec::new(), meta: None })
    }

    /// Opens a conversation with a handshake.
    pub(crate) fn open(walls: &Walls, options: &[&str], capabilities: &Value) -> Result<Wire> {
        Wire::start(walls, options)?.opened(capabilities)
    }

    /// The same with a server whose allocator keeps nothing apart for each thread: what it holds back looks like a leak.
    pub(crate) fn open_measured(walls: &Walls, options: &[&str]) -> Result<Wire> {
        Wire::start_by(walls, &["env", "MALLOC_ARENA_MAX=1"], options)?.opened(&json!({}))
    }

    fn opened(mut self, capabilities: &Value) -> Result<Wire> {
        let params = json!({"protocolVersion": HANDSHAKE, "capabilities": capabilities, "clientInfo": {"name": "wire", "version": "1"}});
        let answer = self.request("initialize", params)?;
        if answer["result"]["protocolVersion"] != HANDSHAKE {
            return Err(format!("{answer} {}", self.complaint()));
        }
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(self)
    }

    /// Opens a conversation of the revision in which every request says who asks.
    pub(crate) fn open_current(walls: &Walls, options: &[&str], capabilities: &Value) -> Result<Wire> {
        let mut wire = Wire::start(walls, options)?;
        wire.meta = Some(json!({
            "io.modelcontextprotocol/protocolVersion": CURRENT,
            "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }));
        let found = wire.request("server/discover", json!({}))?;
        let versions = found["result"]["supportedVersions"].as_array().cloned().unwrap_or_default();
        if versions.iter().any(|version| version == CURRENT) { Ok(wire) } else { Err(format!("{found}")) }
    }

    /// What the server says on standard error, once it has ended.
    pub(crate) fn complaint(&mut self) -> String {
        let _ = self.child.kill();
        let mut said = String::new();
        if let Some(mut err) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut err, &mut said);
        }
        said
    }

    /// Leaves everything unread from here on.
    pub(crate) fn stop_reading(&mut self) {
        self.paused.store(true, Ordering::Relaxed);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let input = self.input.as_mut().ok_or("the input is closed")?;
        input.write_all(bytes).and_then(|()| input.flush()).map_err(|e| format!("cannot send: {e}"))
    }

    pub(crate) fn send(&mut self, message: &Value) -> Result<()> {
        self.send_bytes(format!("{message}\n").as_bytes())
    }

    /// Sends a request and returns its number.
    pub(crate) fn ask(&mut self, method: &str, mut params: Value) -> Result<u64> {
        self.next += 1;
        if let Some(meta) = &self.meta {
            for (key, value) in meta.as_object().into_iter().flatten() {
                params["_meta"][key] = value.clone();
            }
        }
        self.send(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}))?;
        Ok(self.next)
    }

    /// The next message. A line that is none is an error.
    pub(crate) fn hear_within(&mut self, time: Duration) -> Result<Option<Value>> {
        let line = match self.lines.recv_timeout(time) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(format!("the server has gone: {}", self.complaint())),
        };
        let shown = || String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned();
        let message: Value = serde_json::from_slice(&line).map_err(|e| format!("no JSON: {e}: {}", shown()))?;
        if message["jsonrpc"] != "2.0" || line.last() != Some(&b'\n') {
            return Err(format!("no message: {}", shown()));
        }
        Ok(Some(message))
    }

    pub(crate) fn hear(&mut self) -> Result<Value> {
        self.hear_within(PATIENCE)?.ok_or_else(|| "the server says nothing".to_owned())
    }

    /// The answer to a request; what comes before it is kept.
    pub(crate) fn answer(&mut self, id: u64) -> Result<Value> {
        let answers = |message: &Value| message["id"] == id && message.get("method").is_none();
        // It may have come while something else was waited for.
        if let Some(index) = self.met.iter().position(answers) {
            return Ok(self.met.remove(index));
        }
        loop {
            let message = self.hear()?;
            if answers(&message) {
                return Ok(message);
            }
            self.met.push(message);
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.ask(method, params)?;
        self.answer(id)
    }

    pub(crate) fn begin_call(&mut self, tool: &str, arguments: Value) -> Result<u64> {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool and returns the result.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let id = self.begin_call(tool, arguments)?;
        let answer = self.answer(id)?;
        answer.get("result").cloned().ok_or_else(|| format!("{answer}"))
    }

    /// Runs a command and returns the text.
    pub(crate) fn bash(&mut self, command: &str) -> Result<String> {
        self.call("bash", bash(command)).map(|result| text(&result))
    }

    /// Waits for a message of the server that has this method.
    pub(crate) fn wait_for(&mut self, method: &str) -> Result<Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(index) = self.met.iter().position(|message| message["method"] == method) {
                return Ok(self.met.remove(index));
            }
            if Instant::now() > until {
                return Err(format!("no {method}; {:?}", self.met));
            }
            if let Some(message) = self.hear_within(Duration::from_millis(100))? {
                self.met.push(message);
            }
        }
    }

    pub(crate) fn cancel(&mut self, id: u64) -> Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}))
    }

    /// Closes the input and waits for the end.
    pub(crate) fn close(&mut self) -> Result<ExitStatus> {
        self.input = None;
        self.end()
    }

    pub(crate) fn end(&mut self) -> Result<ExitStatus> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        Err(format!("the server does not end: {}", self.complaint()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.input = None;
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Arguments of a command.
pub(crate) fn bash(command: &str) -> Value {
    json!({"command": command, "description": "a test"})
}

/// Arguments of a command for which more is asked.
pub(crate) fn more(command: &str, mode: &str) -> Value {
    json!({"command": command, "description": "a test", "sandbox_permissions": mode, "justification": "the test needs it"})
}

/// The first text of a result.
pub(crate) fn text(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}
