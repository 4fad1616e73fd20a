//! Who is asked for more, and what a yes opens.

use crate::Claim;
use crate::wire::{PATIENCE, Wire, more, text};
use pinfold_conformance::walls::{Walls, expect, expect_equal};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub(crate) const CLAIMS: &[Claim] = &[
    ("a-yes-is-for-one-call", one_call),
    ("a-yes-is-for-the-directory-that-was-shown", shown_directory),
    ("no-is-no-and-nonsense-is-no-yes", no),
    ("a-client-that-cannot-ask-gets-unavailable", unavailable),
    ("a-configured-answer-outranks-everybody", configured),
    ("a-withdrawn-call-withdraws-its-question", withdrawn),
    ("another-terminal-may-answer-first", elsewhere),
    ("a-file-is-offered-by-its-directory-before-the-mode", narrow),
    ("a-question-about-a-file-says-what-it-meets-and-what-is-unseen", unseen),
    ("the-current-revision-asks-by-its-answer", again),
    ("a-question-that-nobody-answers-ends", nobody),
    ("roots-are-taken-only-where-the-operator-says", roots),
];

const FORMS: fn() -> Value = || json!({"elicitation": {}});

/// Answers the question that the server asks.
fn decide(wire: &mut Wire, result: &Value) -> Result<Value, String> {
    let question = wire.wait_for("elicitation/create")?;
    wire.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}))?;
    Ok(question["params"].clone())
}

fn yes(number: &str) -> Value {
    json!({"action": "accept", "content": {"decision": number}})
}

fn one_call(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &FORMS())?;
    expect(wire.bash("touch f")?.contains("denied under read-only"), "the control was not denied")?;
    let id = wire.begin_call("bash", more("touch f && echo done", "workspace-write"))?;
    let question = decide(&mut wire, &yes("1"))?;
    let message = question["message"].as_str().unwrap_or_default();
    for words in
        ["\"touch f && echo done\"", "under mode read-only", "escalate sandbox to workspace-write: the test needs it"]
    {
        expect(message.contains(words), format!("{words}: {message}"))?;
    }
    let choices = &question["requestedSchema"]["properties"]["decision"]["oneOf"];
    expect_equal(&choices[0]["title"], &json!("Allow mode workspace-write, for this one call"))?;
    expect_equal(text(&wire.answer(id)?["result"]).as_str(), "done\n")?;
    expect(walls.fixture.ws().join("f").exists(), "nothing was written")?;
    // The same without asking is denied again.
    expect(wire.bash("touch g")?.contains("denied under read-only"), "the yes lasted")
}

/// What runs unconfined runs in the directory that was shown, whatever has taken its name by the time of the yes.
fn shown_directory(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &FORMS())?;
    let io = |error: std::io::Error| error.to_string();
    let (ws, out) = (walls.fixture.ws(), walls.fixture.out());
    let (shown, victim) = (ws.join("a"), out.join("victim"));
    for by in ["nothing", "a link", "another directory"] {
        for path in [&shown, &victim] {
            std::fs::create_dir(path).map_err(io)?;
            std::os::unix::fs::chown(path, Some(walls.fixture.uid), Some(walls.fixture.uid)).map_err(io)?;
        }
        let mut call = more("touch mark", "danger-full-access");
        call["workdir"] = json!("a");
        let id = wire.begin_call("bash", call)?;
        let question = wire.wait_for("elicitation/create")?;
        if by != "nothing" {
            std::fs::rename(&shown, ws.join(format!("was {by}"))).map_err(io)?;
        }
        match by {
            "a link" => std::os::unix::fs::symlink(&victim, &shown).map_err(io)?,
            "another directory" => std::fs::rename(&victim, &shown).map_err(io)?,
            _ => {}
        }
        wire.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": yes("1")}))?;
        let said = text(&wire.answer(id)?["result"]);
        // The control: with the directory that was shown it is done.
        let marked = shown.join("mark").exists() || victim.join("mark").exists();
        expect_equal(marked, by == "nothing").map_err(|error| format!("{by}: {error}: {said}"))?;
        expect_equal(said.contains("the question was about the one before"), by != "nothing")
            .map_err(|error| format!("{by}: {error}: {said}"))?;
        match by {
            "a link" => std::fs::remove_file(&shown).map_err(io)?,
            _ => std::fs::remove_dir_all(&shown).map_err(io)?,
        }
        if victim.exists() {
            std::fs::remove_dir_all(&victim).map_err(io)?;
        }
    }
    Ok(())
}

fn no(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &FORMS())?;
    let rejected = "the user rejected escalating this command to \"workspace-write\"; it stays denied, so stop and explain instead of working around it";
    let unavailable =
        "sandbox escalation to \"workspace-write\" requires approval, but no approval channel is available";
    let nonsense = "the client's answer about escalating to \"workspace-write\" is none of those that were offered, so it counts as no; nothing has run";
    let cancelled = "approval for escalating to \"workspace-write\" was cancelled";
    let cases = [
        (json!({"action": "decline"}), rejected),
        (yes("no"), rejected),
        (json!({"action": "cancel"}), cancelled),
        (yes("7"), nonsense),
        (yes("0"), nonsense),
        (yes(""), nonsense),
        (json!({"action": "accept"}), nonsense),
        (json!({"action": "accept", "content": {"decision": 1}}), nonsense),
        (json!({"action": "accept", "content": [1]}), nonsense),
        (json!({"action": "yes"}), nonsense),
        (json!({}), nonsense),
    ];
    for (answer, expected) in cases {
        let id = wire.begin_call("bash", more("touch f", "workspace-write"))?;
        decide(&mut wire, &answer)?;
        let result = wire.answer(id)?["result"].clone();
        expect_equal((text(&result).as_str(), &result["isError"]), (expected, &json!(true)))?;
    }
    let id = wire.begin_call("bash", more("touch f", "workspace-write"))?;
    let question = wire.wait_for("elicitation/create")?;
    wire.send(&json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -32603, "message": "no"}}))?;
    expect_equal(text(&wire.answer(id)?["result"]).as_str(), unavailable)?;
    expect(!walls.fixture.ws().join("f").exists(), "something was written")
}

fn unavailable(walls: &Walls) -> Result<(), String> {
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        let mut wire = Wire::open(walls, &["--mode", "read-only"], &capabilities)?;
        let begun = Instant::now();
        let result = wire.call("bash", more("touch f", "workspace-write"))?;
        let expected =
            "sandbox escalation to \"workspace-write\" requires approval, but no approval channel is available";
        expect_equal(text(&result).as_str(), expected)?;
        expect_equal(&result["structuredContent"]["code"], &json!("unavailable"))?;
        expect(begun.elapsed() < PATIENCE, "it waited")?;
        let write = wire.call("write", json!({"file_path": "f", "content": "x"}))?;
        for said in [wire.bash("touch f")?, text(&write)] {
            expect(said.contains("denied under read-only") && said.contains("approval is unavailable"), &said)?;
            expect(!said.contains("retry this exact"), &said)?;
        }
    }
    // Where another terminal may answer, it can be asked for.
    let mut waits = Wire::open(walls, &["--mode", "read-only", "--wait-for-approval"], &json!({}))?;
    let said = waits.bash("touch f")?;
    expect(said.contains("retry this exact"), said)?;
    expect(!walls.fixture.ws().join("f").exists(), "something was written")
}

fn configured(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "read-only", "--approval", "never"], &FORMS())?;
    let result = wire.call("bash", more("touch f", "workspace-write"))?;
    expect(text(&result).starts_with("approval policy \"never\" refuses"), text(&result))?;
    expect(wire.met.iter().all(|it| it["method"] != "elicitation/create"), "somebody was asked")?;
    let write = wire.call("write", json!({"file_path": "f", "content": "x"}))?;
    for said in [wire.bash("touch f")?, text(&write)] {
        expect(said.contains("denied under read-only") && !said.contains("escalation available"), said)?;
    }
    // A rule of the configuration answers where nobody can be asked.
    let folder = walls.home().join(".config/pinfold");
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let rule = "[approval]\npolicy = \"allow-listed\"\n[[approval.allow]]\ncommand = [\"bash\", \"-c\", \"touch f\"]\nmode = \"workspace-write\"\n";
    std::fs::write(folder.join("config.toml"), rule).map_err(|e| e.to_string())?;
    for path in [walls.home().join(".config"), folder.clone(), folder.join("config.toml")] {
        std::os::unix::fs::chown(path, Some(walls.fixture.uid), Some(walls.fixture.uid)).map_err(|e| e.to_string())?;
    }
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &json!({}))?;
    let other = wire.call("bash", more("touch g", "workspace-write"))?;
    expect(text(&other).starts_with("no rule allows"), text(&other))?;
    let allowed = wire.call("bash", more("touch f", "workspace-write"))?;
    expect_equal(text(&allowed).as_str(), "(no output)")?;
    expect(walls.fixture.ws().join("f").exists() && !walls.fixture.ws().join("g").exists(), "not what the rule says")
}

fn withdrawn(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &FORMS())?;
    let id = wire.begin_call("bash", more("touch f", "workspace-write"))?;
    let question = wire.wait_for("elicitation/create")?;
    wire.cancel(id)?;
    let taken_back = wire.wait_for("notifications/cancelled")?;
    expect_equal(&taken_back["params"]["requestId"], &question["id"])?;
    // A late yes is nobody's.
    wire.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": yes("1")}))?;
    expect_equal(wire.bash("echo next")?.as_str(), "next\n")?;
    expect(!walls.fixture.ws().join("f").exists(), "a late yes counted")
}

/// `pinfold approve` on a terminal of its own, at which somebody types a line.
fn approve(walls: &Walls, line: &str) -> Result<Child, String> {
    let program = format!("'{}' approve --wait 30", walls.pinfold().display());
    let mut command = walls.plain(&["script", "-qec", &program, "/dev/null"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| format!("script: {e}"))?;
    let mut input = child.stdin.take().ok_or("no input")?;
    let mut out = child.stdout.take().ok_or("no output")?;
    let line = line.to_owned();
    std::thread::spawn(move || {
        use std::io::Read as _;
        let (mut said, mut buffer, mut typed) = (String::new(), [0; 4096], false);
        while let Ok(count @ 1..) = out.read(&mut buffer) {
            said.push_str(&String::from_utf8_lossy(&buffer[..count]));
            if !typed && said.contains("or n for no") {
                typed = true;
                let _ = input.write_all(format!("{line}\n").as_bytes());
            }
        }
    });
    Ok(child)
}

fn elsewhere(walls: &Walls) -> Result<(), String> {
    // The client's question is taken back.
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &FORMS())?;
    let id = wire.begin_call("bash", more("touch f", "workspace-write"))?;
    let question = wire.wait_for("elicitation/create")?;
    let mut terminal = approve(walls, "1")?;
    let answer = wire.answer(id)?;
    expect_equal(text(&answer["result"]).as_str(), "(no output)")?;
    expect(walls.fixture.ws().join("f").exists(), "the yes of the terminal did not count")?;
    let taken_back = wire.wait_for("notifications/cancelled")?;
    expect_equal(&taken_back["params"]["requestId"], &question["id"])?;
    let _ = terminal.wait();
    // A client that cannot ask waits where it was told to.
    let mut wire = Wire::open(walls, &["--mode", "read-only", "--wait-for-approval"], &json!({}))?;
    let id = wire.begin_call("bash", more("touch g", "workspace-write"))?;
    let mut terminal = approve(walls, "n")?;
    let answer = wire.answer(id)?;
    expect(text(&answer["result"]).starts_with("the user rejected"), format!("{answer}"))?;
    let _ = terminal.wait();
    expect(!walls.fixture.ws().join("g").exists(), "something was written")
}

// Narrow grants come first, and a yes to one opens that and nothing else.
fn narrow(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &FORMS())?;
    let out = walls.fixture.out();
    let write = |name: &str| {
        let path = out.join(name).to_string_lossy().into_owned();
        json!({"file_path": path, "content": "x", "sandbox_permissions": "danger-full-access", "justification": "the test needs it"})
    };
    let id = wire.begin_call("write", write("f"))?;
    let question = decide(&mut wire, &yes("1"))?;
    let titles = &question["requestedSchema"]["properties"]["decision"]["oneOf"];
    let expected = format!("Allow write below \"{}\", for this one call", out.display());
    expect_equal(&titles[0]["title"], &json!(expected))?;
    expect_equal(&titles[2]["title"], &json!("Allow mode danger-full-access, for this one call"))?;
    let result = wire.answer(id)?["result"].clone();
    expect_equal((&result["isError"], out.join("f").exists()), (&json!(false), true))?;
    // The yes was for that call and that directory.
    let again = wire.call("write", json!({"file_path": out.join("g"), "content": "x"}))?;
    expect_equal(&again["structuredContent"]["code"], &json!("FS_SANDBOX_DENIED"))?;
    // For the session: commands have it too.
    let id = wire.begin_call("write", write("h"))?;
    decide(&mut wire, &yes("2"))?;
    wire.answer(id)?;
    expect_equal(wire.bash(&format!("touch {}/i && echo ok", out.display()))?.as_str(), "ok\n")?;
    // Beside it nothing is open: the yes was not for the mode.
    let beside = walls.fixture.base().join("bin/x");
    let said = wire.bash(&format!("touch {}", beside.display()))?;
    expect(said.contains("denied under workspace-write") && !beside.exists(), said)
}

// Of a long text the beginning is shown, how much is not, and nobody allows that with a number alone.
fn unseen(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &FORMS())?;
    let long = format!("begins{}ends", "y".repeat(6000));
    let unseen = json!({"action": "accept", "content": {"decision": "1", "unseen": true}});
    let write = |content: &str| json!({"file_path": "f", "content": content, "sandbox_permissions": "workspace-write", "justification": "the test needs it"});
    let all = |message: &Value| -> String {
        // Lines are broken by the server; what matters is what stands in them.
        let lines = message.as_str().unwrap_or_default().lines();
        lines.flat_map(|line| line.trim_start_matches([' ', '|', '~']).split(' ')).collect()
    };
    let cases = [
        (write("short"), yes("1"), vec!["\"a new file\"", "\"5 bytes:\" \"short\""], false, "short"),
        (
            write(&long),
            yes("1"),
            vec!["in place of 5 bytes", "\"6010 bytes:\" \"begins", "and 5010 more bytes, which are not shown"],
            true,
            "short",
        ),
        (write(&long), unseen.clone(), vec!["in place of 5 bytes"], true, long.as_str()),
    ];
    for (arguments, answer, shown, hidden, after) in cases {
        wire.call("read", json!({"file_path": "f"}))?;
        let id = wire.begin_call("write", arguments)?;
        let question = decide(&mut wire, &answer)?;
        let message = all(&question["message"]);
        for words in shown {
            expect(message.contains(&words.replace(' ', "")), format!("{words}: {message}"))?;
        }
        expect(message.contains(&*walls.fixture.ws().join("f").to_string_lossy()), &message)?;
        expect_equal(message.contains("ends"), false)?;
        expect_equal(question["requestedSchema"]["properties"].get("unseen").is_some(), hidden)?;
        let result = wire.answer(id)?["result"].clone();
        let there = std::fs::read_to_string(walls.fixture.ws().join("f")).map_err(|e| format!("{e}: {result}"))?;
        expect_equal(there.as_str(), after)?;
    }
    wire.call("read", json!({"file_path": "f"}))?;
    let edit = json!({"file_path": "f", "old_string": long, "new_string": "2", "sandbox_permissions": "workspace-write", "justification": "the test needs it"});
    let id = wire.begin_call("edit", edit)?;
    let question = decide(&mut wire, &unseen)?;
    let message = all(&question["message"]);
    for words in ["a file of 6010 bytes", "more bytes, which are not shown"] {
        expect(message.contains(&words.replace(' ', "")), format!("{words}: {message}"))?;
    }
    expect_equal(wire.answer(id)?["result"]["isError"].clone(), json!(false))?;
    expect_equal(std::fs::read_to_string(walls.fixture.ws().join("f")).map_err(|e| e.to_string())?.as_str(), "2")
}

// 2026-07-28: a server asks by its answer, and the client calls again.
fn again(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open_current(walls, &["--mode", "read-only"], &FORMS())?;
    let first = wire.call("bash", more("touch f && echo done", "workspace-write"))?;
    expect_equal(&first["resultType"], &json!("input_required"))?;
    let request = &first["inputRequests"]["approval"];
    expect_equal(&request["method"], &json!("elicitation/create"))?;
    expect(!walls.fixture.ws().join("f").exists(), "it ran before the answer")?;
    let retry = |arguments: Value, answer: Value, state: &Value| json!({"name": "bash", "arguments": arguments, "inputResponses": {"approval": answer}, "requestState": state});
    // A yes to one command is no yes to another.
    let other = retry(more("touch g", "workspace-write"), yes("1"), &first["requestState"]);
    let other = wire.request("tools/call", other)?["result"].clone();
    expect_equal((&other["resultType"], walls.fixture.ws().join("g").exists()), (&json!("input_required"), false))?;
    // The grant waits for its own call, once.
    let mine = json!({"name": "bash", "arguments": more("touch f && echo done", "workspace-write")});
    let mine = wire.request("tools/call", mine)?["result"].clone();
    expect_equal(text(&mine).as_str(), "done\n")?;
    // A state that nobody gave, or that was handed back before, answers nothing.
    for state in [json!("forged"), first["requestState"].clone()] {
        let forged = retry(more("touch h", "workspace-write"), yes("1"), &state);
        let forged = wire.request("tools/call", forged)?["result"].clone();
        expect_equal(&forged["resultType"], &json!("input_required"))?;
    }
    let last = wire.call("bash", more("touch h", "workspace-write"))?;
    let declined = retry(more("touch h", "workspace-write"), json!({"action": "decline"}), &last["requestState"]);
    let declined = wire.request("tools/call", declined)?["result"].clone();
    expect(
        text(&declined).starts_with("the user rejected") && !walls.fixture.ws().join("h").exists(),
        format!("{declined}"),
    )?;
    // Without the capability nobody is asked.
    let mut mute = Wire::open_current(walls, &["--mode", "read-only"], &json!({}))?;
    let result = mute.call("bash", more("touch h", "workspace-write"))?;
    expect(text(&result).ends_with("no approval channel is available"), text(&result))
}

fn nobody(walls: &Walls) -> Result<(), String> {
    let folder = walls.home().join(".config/pinfold");
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    std::fs::write(folder.join("config.toml"), "[approval]\ntimeout = 1\n").map_err(|e| e.to_string())?;
    for path in [walls.home().join(".config"), folder.clone(), folder.join("config.toml")] {
        std::os::unix::fs::chown(path, Some(walls.fixture.uid), Some(walls.fixture.uid)).map_err(|e| e.to_string())?;
    }
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &FORMS())?;
    let id = wire.begin_call("bash", more("touch f", "workspace-write"))?;
    let question = wire.wait_for("elicitation/create")?;
    // Meanwhile everything else goes on.
    expect_equal(wire.bash("echo meanwhile")?.as_str(), "meanwhile\n")?;
    let answer = wire.answer(id)?;
    expect(text(&answer["result"]).ends_with("no approval channel is available"), format!("{answer}"))?;
    let taken_back = wire.wait_for("notifications/cancelled")?;
    expect_equal(&taken_back["params"]["requestId"], &question["id"])?;
    expect(!walls.fixture.ws().join("f").exists(), "something was written")
}

/// Names the roots that the server asks for.
fn name_roots(wire: &mut Wire, roots: &[String]) -> Result<(), String> {
    let asked = wire.wait_for("roots/list")?;
    let roots: Vec<_> = roots.iter().map(|root| json!({"uri": root})).collect();
    wire.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": roots}}))
}

fn roots(walls: &Walls) -> Result<(), String> {
    let out = walls.fixture.out();
    let allowed = out.join("allowed");
    for name in ["allowed/a", "allowed/b", "other"] {
        std::fs::create_dir_all(out.join(name)).map_err(|e| e.to_string())?;
    }
    let chown =
        |path: &std::path::Path| std::os::unix::fs::chown(path, Some(walls.fixture.uid), Some(walls.fixture.uid));
    for name in ["allowed", "allowed/a", "allowed/b", "other"] {
        chown(&out.join(name)).map_err(|e| e.to_string())?;
    }
    std::os::unix::fs::symlink(out.join("other"), allowed.join("link")).map_err(|e| e.to_string())?;
    let url = |name: &str| format!("file://{}", out.join(name).display());
    let home = format!("file://{}", walls.home().display());
    let state = format!("file://{}/.local/state/pinfold", walls.home().display());
    let named = [url("allowed/a"), url("other"), url("allowed/link"), "file:///".to_owned(), home, state];
    let base = walls.fixture.base().to_string_lossy().into_owned();
    let touch = |name: &str| format!("touch {}/x && echo ok", out.join(name).display());
    let capable = json!({"roots": {"listChanged": true}});
    let below = allowed.to_string_lossy().into_owned();
    let mut wire =
        Wire::open(walls, &["--mode", "workspace-write", "--persistent-shell", "--roots-below", &below], &capable)?;
    expect(wire.bash(&touch("allowed/a"))?.contains("denied"), "open before it was named")?;
    name_roots(&mut wire, &named)?;
    let said = wire.wait_for("notifications/message")?;
    expect_equal(&said["params"]["level"], &json!("warning"))?;
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let said = wire.bash(&touch("allowed/a"))?;
        if said.ends_with("ok\n") {
            break;
        }
        expect(Instant::now() < until, said)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    for closed in ["other", "allowed/b", "allowed/link"] {
        let said = wire.bash(&touch(closed))?;
        expect(said.contains("denied under workspace-write"), said)?;
    }
    // Others in their place: the shell that had them is gone, and it is said.
    wire.send(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}))?;
    name_roots(&mut wire, &[url("allowed/b")])?;
    loop {
        let said = wire.bash(&touch("allowed/b"))?;
        if said.ends_with("ok\n") {
            break;
        }
        expect(Instant::now() < until + Duration::from_secs(20), said)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    expect(wire.bash(&touch("allowed/a"))?.contains("denied"), "a root outlived its name")?;
    let announced = |it: &Value| {
        it["method"] == "notifications/message"
            && it["params"]["data"].as_str().is_some_and(|text| text.contains("roots of the client"))
    };
    expect(wire.met.iter().any(announced), format!("{:?}", wire.met))?;
    // Even where the operator allows everything: never these.
    let mut wide = Wire::open(walls, &["--mode", "workspace-write", "--roots-below", "/"], &capable)?;
    name_roots(&mut wide, &named[3..])?;
    for _ in 0..3 {
        wide.wait_for("notifications/message")?;
    }
    expect(
        wide.bash(&format!("touch {}/x", walls.home().display()))?.contains("denied"),
        "the home directory is open",
    )?;
    expect(wide.bash(&format!("touch {base}/bin/x"))?.contains("denied"), "/ is open")?;
    // In read-only a root opens nothing.
    let mut closed = Wire::open(walls, &["--mode", "read-only", "--roots-below", &below], &capable)?;
    name_roots(&mut closed, &[url("allowed/a")])?;
    closed.wait_for("notifications/message")?;
    expect(closed.bash(&touch("allowed/a"))?.contains("denied under read-only"), "a root widened the mode")?;
    // And without the operator's word no client is asked.
    let mut unasked = Wire::open(walls, &["--mode", "workspace-write"], &capable)?;
    unasked.bash("true")?;
    expect(unasked.met.iter().all(|it| it["method"] != "roots/list"), "the client was asked")?;
    Ok(())
}
