//! What tools take, do and say.

use crate::Claim;
use crate::wire::{Wire, bash, more, text};
use pinfold_conformance::walls::{Walls, expect, expect_equal};
use serde_json::{Value, json};

pub(crate) const CLAIMS: &[Claim] = &[
    ("fields-that-ask-for-more-are-there-exactly-while-the-session-confines", fields),
    ("results-have-their-markers-and-the-outcome-beside-them", results),
    ("arguments-are-refused-in-the-words-of-the-reference", refused_arguments),
    ("a-job-is-read-piece-by-piece-and-killed", jobs),
    ("a-command-whose-time-is-up-goes-on-as-a-job", promoted),
    ("files-are-read-before-they-are-changed-and-fenced", files),
    ("resources-tell-policy-report-and-log", resources),
    ("a-persistent-shell-keeps-its-directory", persistent),
    ("progress-grows-and-carries-the-last-line", progress),
    ("background-jobs-are-confined-as-all-else", background_is_confined),
    ("both-revisions-are-spoken", both_revisions),
    ("presets-of-the-command-line-hold", presets),
    ("a-secret-that-is-not-read-is-no-cause-to-ask", secret),
    ("without-background-nothing-speaks-of-jobs", no_background),
    ("the-model-is-told-which-names-stay", protected_names),
    ("a-root-that-comes-later-takes-no-protection-away", protected_later),
    ("a-refusal-on-proof-is-told-although-the-end-is-well", proved),
];

fn tool<'a>(tools: &'a Value, name: &str) -> Result<&'a Value, String> {
    let tools = tools["result"]["tools"].as_array().ok_or_else(|| format!("{tools}"))?;
    tools.iter().find(|tool| tool["name"] == name).ok_or_else(|| format!("no {name}"))
}

// U358–U360, U361, U363, U517: and a change of the mode by another process is told.
fn fields(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let has = |tools: &Value, name: &str| -> Result<bool, String> {
        Ok(tool(tools, name)?["inputSchema"]["properties"].get("sandbox_permissions").is_some())
    };
    let tools = wire.request("tools/list", json!({}))?;
    for (name, expected) in [("bash", true), ("write", true), ("edit", true), ("read", false), ("search", false)] {
        expect_equal((name, has(&tools, name)?), (name, expected))?;
    }
    let log = text_of_resource(&mut wire, "pinfold://log")?;
    let id = log.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok());
    let id = id.and_then(|event| event["data"]["id"].as_str().map(str::to_owned)).ok_or("no session in the log")?;
    let pinfold = walls.pinfold();
    let set = walls
        .plain(&[pinfold.as_os_str(), "session".as_ref(), "mode".as_ref(), id.as_ref(), "danger-full-access".as_ref()])
        .status();
    expect(set.is_ok_and(|status| status.success()), "the mode was not set")?;
    wire.wait_for("notifications/tools/list_changed")?;
    let tools = wire.request("tools/list", json!({}))?;
    expect(!has(&tools, "bash")? && !has(&tools, "write")?, "fields without anything that confines")?;
    let result = wire.call("bash", more("true", "danger-full-access"))?;
    expect_equal(
        text(&result).as_str(),
        "sandbox_permissions is not available in this composition (no sandboxing executor to escalate)",
    )?;
    // What changed is told once, behind the next result.
    let news = wire.call("bash", bash("true"))?;
    expect(
        news["content"][1]["text"].as_str().is_some_and(|text| text.contains("danger-full-access")),
        format!("{news}"),
    )?;
    let quiet = wire.call("bash", bash("true"))?;
    expect(quiet["content"].as_array().is_some_and(|content| content.len() == 1), format!("{quiet}"))
}

fn text_of_resource(wire: &mut Wire, uri: &str) -> Result<String, String> {
    let read = wire.request("resources/read", json!({"uri": uri}))?;
    read["result"]["contents"][0]["text"].as_str().map(str::to_owned).ok_or_else(|| format!("{read}"))
}

// U374–U379
fn results(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &json!({}))?;
    expect_equal(wire.bash("echo out; echo err >&2; exit 3")?.as_str(), "out\n[stderr]\nerr\n[exit code: 3]")?;
    expect_equal(wire.bash("true")?.as_str(), "(no output)")?;
    expect_equal(wire.bash("kill -9 $$")?.as_str(), "(no output)\n[killed by signal: SIGKILL]")?;
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &json!({"elicitation": {}}))?;
    let denied = wire.call("bash", bash("touch f"))?;
    let expected = "[sandbox: file access denied under read-only mode]\n[sandbox: escalation available — retry this exact command once with sandbox_permissions (the narrowest wider mode that suffices) + justification; the approval prompt asks the user]\n[exit code: 1]";
    expect(text(&denied).ends_with(expected), text(&denied))?;
    expect_equal(&denied["isError"], &json!(false))?;
    let facts = &denied["structuredContent"];
    expect_equal(
        (&facts["kind"], &facts["exitCode"], &facts["sandbox"]["denied"]),
        (&json!("foreground"), &json!(1), &json!(true)),
    )?;
    expect_equal(&facts["outcome"]["verdict"], &json!("denied"))?;
    expect(facts["outcome"]["report"]["guarantees"].is_array(), format!("no report: {facts}"))?;
    // The control: the same where it is allowed.
    let mut open = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    expect_equal(open.bash("touch f && echo ok")?.as_str(), "ok\n")
}

// U361, U364, U275–U277, U280
fn refused_arguments(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let cases = [
        (json!({"description": "d"}), "invalid command: expected a non-empty string"),
        (json!({"command": "", "description": "d"}), "invalid command: expected a non-empty string"),
        (json!({"command": "true"}), "invalid description: expected a non-empty string"),
        (json!({"command": 1, "description": "d"}), "invalid command: expected a string, got 1"),
        (
            json!({"command": "true", "description": "d", "timeoutMs": 0}),
            "invalid timeoutMs: expected a positive number, got 0",
        ),
        (
            json!({"command": "true", "description": "d", "timeoutMs": "x"}),
            "invalid timeoutMs: expected a positive number, got \"x\"",
        ),
        (json!({"command": "true", "description": "d", "stdin": "x"}), "unknown argument \"stdin\""),
        (
            json!({"command": "true", "description": "d", "sandbox_permissions": "danger-full-access"}),
            "invalid escalation: sandbox_permissions requires a justification",
        ),
        (
            json!({"command": "true", "description": "d", "justification": "j"}),
            "invalid escalation: justification is only valid together with sandbox_permissions",
        ),
        (
            json!({"command": "true", "description": "d", "sandbox_permissions": "danger-full-access", "justification": " "}),
            "invalid justification: expected a non-empty sentence",
        ),
    ];
    for (arguments, expected) in cases {
        let result = wire.call("bash", arguments)?;
        expect_equal((text(&result).as_str(), &result["isError"]), (expected, &json!(true)))?;
        expect_equal(&result["structuredContent"]["kind"], &json!("refused"))?;
    }
    let code = |result: &Value| result["structuredContent"]["code"].clone();
    let missing = json!({"command": "true", "description": "d", "sandbox_permissions": "danger-full-access"});
    expect_equal(code(&wire.call("bash", missing)?), json!("INVALID_ARGUMENTS"))?;
    // A name that is not known is said before the one that is missed.
    let unknown = wire.call("read", json!({"path": "f"}))?;
    expect_equal((text(&unknown).as_str(), code(&unknown)), ("unknown argument \"path\"", json!("INVALID_ARGUMENTS")))?;
    // What is in force asks nobody.
    expect_equal(text(&wire.call("bash", more("echo ok", "workspace-write"))?).as_str(), "ok\n")?;
    let unknown = wire.request("tools/call", json!({"name": "rm", "arguments": {}}))?;
    expect_equal(&unknown["error"]["code"], &json!(-32602))?;
    // A withdrawn or wrong call leaves the server as it was.
    expect_equal(wire.bash("echo still")?.as_str(), "still\n")
}

// U380–U382, U385
fn jobs(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let started =
        wire.call("bash", json!({"command": "echo one; sleep 600", "description": "d", "run_in_background": true}))?;
    expect_equal(text(&started).as_str(), "started background job job-1")?;
    expect_equal(&started["structuredContent"], &json!({"kind": "background", "jobId": "job-1"}))?;
    let mut seen = String::new();
    for _ in 0..100 {
        seen = text(&wire.call("job_output", json!({"job_id": "job-1", "wait_ms": 100}))?);
        if seen.contains("one") {
            break;
        }
    }
    expect_equal(seen.as_str(), "one\n[job-1 running]")?;
    let nothing = wire.call("job_output", json!({"job_id": "job-1"}))?;
    expect_equal(text(&nothing).as_str(), "(no new output)\n[job-1 running]")?;
    let killed = wire.call("job_kill", json!({"job_id": "job-1"}))?;
    expect(text(&killed).ends_with("[job-1 killed: signal: SIGTERM]"), text(&killed))?;
    expect_equal(&killed["structuredContent"]["outcome"]["ending"]["kind"], &json!("cancelled"))?;
    let unknown = wire.call("job_kill", json!({"job_id": "job-9"}))?;
    expect(text(&unknown).starts_with("unknown job \"job-9\": job-1 (over)"), text(&unknown))
}

// U390, U391
fn promoted(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let arguments = json!({"command": "echo begun; sleep 3; echo done", "description": "d", "timeoutMs": 1000});
    let result = wire.call("bash", arguments.clone())?;
    expect(
        text(&result).starts_with("begun\n[still running after 1000ms; moved to background job job-1]\n"),
        text(&result),
    )?;
    expect_equal(
        (&result["structuredContent"]["kind"], &result["structuredContent"]["jobId"]),
        (&json!("promoted"), &json!("job-1")),
    )?;
    let end = wire.call("job_output", json!({"job_id": "job-1", "wait_ms": 60000}))?;
    expect_equal(text(&end).as_str(), "done\n[job-1 completed: exit code: 0]")?;
    // B090: where it is ended instead, what it wrote is there.
    let mut strict = Wire::open(walls, &["--mode", "workspace-write", "--end-at-timeout"], &json!({}))?;
    let result = strict.call("bash", arguments)?;
    expect_equal(text(&result).as_str(), "begun\n[timed out after 1000ms]\n[killed by signal: SIGTERM]")?;
    expect_equal(&result["structuredContent"]["timedOut"], &json!(true))
}

// U483, U501, U505, U514, U521
fn files(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({"elicitation": {}}))?;
    let file = json!({"file_path": "sub/f.txt"});
    let made = wire.call("write", json!({"file_path": "sub/f.txt", "content": "one\ntwo\n"}))?;
    expect_equal((&made["isError"], made["structuredContent"]["kind"].as_str()), (&json!(false), Some("changed")))?;
    let edited = wire.call("edit", json!({"file_path": "sub/f.txt", "old_string": "two", "new_string": "2"}))?;
    expect(text(&edited).contains("+2"), text(&edited))?;
    let read = wire.call("read", file)?;
    expect(text(&read).contains("1: one\n2: 2\n"), text(&read))?;
    // What a command wrote was not seen.
    wire.bash("echo x > sub/other")?;
    let unseen = wire.call("edit", json!({"file_path": "sub/other", "old_string": "x", "new_string": "y"}))?;
    expect_equal(&unseen["structuredContent"]["code"], &json!("FS_NOT_OBSERVED"))?;
    let listed = wire.call("list", json!({}))?;
    expect(text(&listed).contains("sub/\n"), text(&listed))?;
    let found = wire.call("search", json!({"pattern": "^o.e$"}))?;
    expect_equal(text(&found).as_str(), "sub/f.txt:1:one\n")?;
    // What is found can be read as it is named.
    for (path, name) in [("sub", "sub/f.txt"), ("sub/f.txt", "sub/f.txt"), ("./sub", "./sub/f.txt")] {
        let found = wire.call("search", json!({"pattern": "^o.e$", "path": path}))?;
        expect_equal(text(&found), format!("{name}:1:one\n"))?;
        let named = found["structuredContent"]["matches"][0]["path"].clone();
        expect(
            text(&wire.call("read", json!({"file_path": named}))?).contains("1: one"),
            format!("{named} is not there"),
        )?;
    }
    expect_equal(text(&wire.call("search", json!({"glob": "*.txt", "path": "sub"}))?).as_str(), "sub/f.txt\n")?;
    let paths = wire.call("search", json!({"glob": "**/*.txt"}))?;
    expect_equal(text(&paths).as_str(), "sub/f.txt\n")?;
    // Outside of the roots, also through a link; the control is the same inside.
    let out = walls.fixture.out().join("g");
    std::os::unix::fs::symlink(walls.fixture.out(), walls.fixture.ws().join("leads-out")).map_err(|e| e.to_string())?;
    for path in [out.to_string_lossy().into_owned(), "leads-out/g".to_owned()] {
        let denied = wire.call("write", json!({"file_path": path, "content": "x"}))?;
        expect_equal(&denied["structuredContent"]["code"], &json!("FS_SANDBOX_DENIED"))?;
        expect(text(&denied).contains("\n[sandbox: file access denied under workspace-write mode]\n[sandbox: escalation available — retry this exact operation once"), text(&denied))?;
    }
    expect(!out.exists(), "a file was written outside")?;
    let missing = wire.call("read", json!({"file_path": "none"}))?;
    expect_equal(&missing["structuredContent"]["code"], &json!("FS_NOT_FOUND"))
}

fn resources(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let listed = wire.request("resources/list", json!({}))?;
    let listed = listed["result"]["resources"].as_array().map(Vec::len);
    expect_equal(listed, Some(3))?;
    wire.bash("exit 7")?;
    let policy = text_of_resource(&mut wire, "pinfold://policy")?;
    expect(policy.contains("Commands run under sandbox mode workspace-write."), policy)?;
    let report: Value =
        serde_json::from_str(&text_of_resource(&mut wire, "pinfold://report")?).map_err(|e| e.to_string())?;
    expect_equal(&report["latest"]["ending"]["code"], &json!(7))?;
    expect(report["latest"]["report"]["backend"].is_string(), format!("{report}"))?;
    let log = text_of_resource(&mut wire, "pinfold://log")?;
    let kinds: Vec<_> = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect();
    let kinds: Vec<_> = kinds.iter().filter_map(|event| event["type"].as_str()).collect();
    expect(kinds.contains(&"call/began") && kinds.contains(&"call/ended"), format!("{kinds:?}"))?;
    let unknown = wire.request("resources/read", json!({"uri": "file:///etc/passwd"}))?;
    expect_equal(&unknown["error"]["code"], &json!(-32002))
}

// U419, U425
fn persistent(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write", "--persistent-shell"], &json!({}))?;
    wire.bash("mkdir -p deep; cd deep; X=5")?;
    let place = wire.bash("pwd; echo $X")?;
    expect(place.ends_with("/deep\n5\n"), place)?;
    let refused = wire.call("bash", json!({"command": "pwd", "description": "d", "workdir": "/"}))?;
    expect_equal(text(&refused).as_str(), "unknown argument \"workdir\"")?;
    // Each of its commands tells what tools outside obey, where nothing is protected.
    let open = ["--mode", "workspace-write", "--persistent-shell", "--protect", "none"];
    let mut open = Wire::open(walls, &open, &json!({}))?;
    open.bash("git init -q . 2>/dev/null || mkdir -p .git/hooks")?;
    let left = |result: &Value| -> Vec<String> {
        let changes = result["structuredContent"]["outcome"]["hostFiles"]["changes"].as_array().cloned();
        let paths = changes.unwrap_or_default();
        paths.iter().filter_map(|it| it["path"].as_str().map(str::to_owned)).collect()
    };
    let hook = walls.fixture.ws().join(".git/hooks/pre-commit").to_string_lossy().into_owned();
    let made = open.call("bash", bash("echo true > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"))?;
    expect_equal(left(&made), vec![hook])?;
    let quiet = open.call("bash", bash("true"))?;
    expect_equal(&quiet["structuredContent"]["outcome"]["hostFiles"]["changes"], &json!([]))?;
    // The control: a fresh one keeps nothing.
    let mut fresh = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    fresh.bash("cd deep; X=5")?;
    let place = fresh.bash("pwd; echo $X")?;
    expect(!place.contains("/deep"), place)
}

fn progress(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let command = "for i in 1 2 3 4; do echo step $i; sleep 1; done";
    let call = json!({"name": "bash", "arguments": bash(command), "_meta": {"progressToken": "p1"}});
    let id = wire.ask("tools/call", call)?;
    wire.answer(id)?;
    let told: Vec<_> =
        wire.met.iter().filter(|it| it["method"] == "notifications/progress").map(|it| it["params"].clone()).collect();
    expect(told.len() >= 2, format!("{told:?}"))?;
    let values: Vec<_> = told.iter().filter_map(|it| it["progress"].as_f64()).collect();
    expect(values.windows(2).all(|pair| pair[0] < pair[1]), format!("{values:?}"))?;
    expect(told.iter().all(|it| it["progressToken"] == "p1"), format!("{told:?}"))?;
    expect(
        told.iter().any(|it| it["message"].as_str().is_some_and(|text| text.contains("step"))),
        format!("{told:?}"),
    )?;
    // Without a token nothing is told.
    wire.met.clear();
    wire.bash("sleep 2")?;
    expect(wire.met.iter().all(|it| it["method"] != "notifications/progress"), format!("{:?}", wire.met))
}

// B051
fn background_is_confined(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &json!({}))?;
    let target = walls.fixture.ws().join("escaped");
    let command = format!("touch {}", target.display());
    wire.call("bash", json!({"command": command, "description": "d", "run_in_background": true}))?;
    let end = wire.call("job_output", json!({"job_id": "job-1", "wait_ms": 60000}))?;
    expect(text(&end).contains("[sandbox: file access denied under read-only mode]"), text(&end))?;
    expect(!target.exists(), "a background job wrote")?;
    let mut open = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    open.bash(&command)?;
    expect(target.exists(), "the control wrote nothing")
}

fn both_revisions(walls: &Walls) -> Result<(), String> {
    let mut current = Wire::open_current(walls, &["--mode", "workspace-write"], &json!({}))?;
    let result = current.call("bash", bash("echo current"))?;
    expect_equal((text(&result).as_str(), &result["resultType"]), ("current\n", &json!("complete")))?;
    let listed = current.request("tools/list", json!({}))?;
    expect(listed["result"]["ttlMs"].is_number(), format!("{listed}"))?;
    let ping = current.request("ping", json!({}))?;
    expect_equal(&ping["error"]["code"], &json!(-32601))?;
    let mut handshake = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let result = handshake.call("bash", bash("echo before"))?;
    expect(result.get("resultType").is_none() && text(&result) == "before\n", format!("{result}"))?;
    let ping = handshake.request("ping", json!({}))?;
    expect_equal(&ping["result"], &json!({}))?;
    // A list that a client hears changes by (2026-07-28).
    let id = current.ask("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}))?;
    let acknowledged = current.wait_for("notifications/subscriptions/acknowledged")?;
    expect_equal(&acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], &json!(id))
}

// What `pinfold run` closes by itself is closed here too, and what names tools obey besides.
fn presets(walls: &Walls) -> Result<(), String> {
    let secret = walls.home().join(".netrc");
    std::fs::write(&secret, "machine x login y password z\n").map_err(|e| e.to_string())?;
    std::os::unix::fs::chown(&secret, Some(walls.fixture.uid), Some(walls.fixture.uid)).map_err(|e| e.to_string())?;
    let look = format!("cat {}; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit", secret.display());
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let said = wire.bash(&look)?;
    expect(!said.contains("password") && !walls.fixture.ws().join(".git/hooks/pre-commit").exists(), said)?;
    let opened = ["--mode", "workspace-write", "--allow-secrets", "--protect", "none"];
    let mut open = Wire::open(walls, &opened, &json!({}))?;
    let said = open.bash(&look)?;
    expect(said.contains("password") && walls.fixture.ws().join(".git/hooks/pre-commit").exists(), said)?;
    Ok(())
}

// `read` has no fields that ask for more.
fn secret(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({"elicitation": {}}))?;
    wire.bash("echo s > secret")?;
    let file = json!({"file_path": "secret"});
    expect(text(&wire.call("read", file.clone())?).contains("1: s"), "the control was not read")?;
    let mut closed =
        Wire::open(walls, &["--mode", "workspace-write", "--deny-read", "secret"], &json!({"elicitation": {}}))?;
    let denied = closed.call("read", file)?;
    expect_equal(&denied["structuredContent"]["code"], &json!("FS_SANDBOX_DENIED"))?;
    let said = text(&denied);
    expect(said.contains("denied under workspace-write") && !said.contains("sandbox_permissions"), said)
}

fn no_background(walls: &Walls) -> Result<(), String> {
    for shell in [&[][..], &["--persistent-shell"]] {
        let options = [&["--mode", "workspace-write", "--no-background"], shell].concat();
        let mut wire = Wire::open(walls, &options, &json!({}))?;
        let tools = wire.request("tools/list", json!({}))?;
        expect(tool(&tools, "job_output").is_err() && tool(&tools, "job_kill").is_err(), format!("{tools}"))?;
        let late =
            wire.call("bash", json!({"command": "echo begun; sleep 60", "description": "d", "timeoutMs": 1000}))?;
        expect(text(&late).starts_with("begun\n[timed out after 1000ms]"), text(&late))?;
        let refused = wire.call("bash", json!({"command": "true", "description": "d", "run_in_background": true}))?;
        expect_equal(text(&refused).as_str(), "run_in_background is disabled for this deployment (--no-background)")?;
    }
    // The control.
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let tools = wire.request("tools/list", json!({}))?;
    tool(&tools, "job_output").map(|_| ())
}

fn protected_names(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let told = text_of_resource(&mut wire, "pinfold://policy")?;
    expect(told.contains("and everything below it, but for what is named below"), &told)?;
    expect(told.contains("Not writable there, present or absent: what tools outside obey (.git/hooks"), &told)?;
    for name in [".git/hooks", ".claude", ".vscode", ".bashrc"] {
        let said = wire.bash(&format!("mkdir -p {name}/d"))?;
        expect(said.contains("denied under workspace-write"), format!("{name}: {said}"))?;
    }
    let mut open = Wire::open(walls, &["--mode", "workspace-write", "--protect", "none"], &json!({}))?;
    let told = text_of_resource(&mut open, "pinfold://policy")?;
    expect(!told.contains("Not writable there"), &told)?;
    expect_equal(open.bash("mkdir -p .git/hooks && echo ok")?.as_str(), "ok\n")
}

/// What is wrong with the words at the start, and is mended later, takes no protection away.
fn protected_later(walls: &Walls) -> Result<(), String> {
    let later = walls.fixture.out().join("made-later");
    let words = ["--mode", "workspace-write", "--writable", later.to_str().unwrap_or_default()];
    let hook = "mkdir -p .git/hooks && echo x > .git/hooks/made-later && echo made";
    let mut wire = Wire::open(walls, &words, &json!({}))?;
    let said = wire.bash("echo ran")?;
    expect(said.contains("does not exist"), said)?;
    std::fs::create_dir(&later).map_err(|error| error.to_string())?;
    expect_equal(wire.bash("echo ran")?.as_str(), "ran\n")?;
    let said = wire.bash(hook)?;
    expect(!said.contains("made\n") && !walls.fixture.ws().join(".git/hooks/made-later").exists(), said)?;
    // The control.
    let mut open = Wire::open(walls, &[&words[..], &["--protect", "none"]].concat(), &json!({}))?;
    expect_equal(open.bash(hook)?.as_str(), "made\n")
}

fn proved(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let result = wire.call("bash", bash("mkdir -p .git; mkdir .git/hooks 2>/dev/null; true"))?;
    let denials = result["structuredContent"]["outcome"]["denials"].as_array().cloned().unwrap_or_default();
    let known = denials.iter().any(|it| it["evidence"] != "inferred");
    let exit = &result["structuredContent"]["exitCode"];
    expect_equal(exit, &json!(0))?;
    // Which mechanism refuses depends on the host; what is proved is told, and nothing else.
    expect_equal(text(&result).contains(" refused under workspace-write mode"), known)?;
    expect_equal(wire.bash("true")?.as_str(), "(no output)")
}
