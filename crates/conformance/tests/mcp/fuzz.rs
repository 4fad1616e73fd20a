//! Messages that are almost right: requests, answers to what the server asks, batches, withdrawals. None of them ends the server,
//! and none opens anything.

use crate::Claim;
use crate::attacks::alive;
use crate::wire::{Wire, more};
use pinfold_conformance::walls::{Walls, expect, expect_equal};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};

pub(crate) const CLAIMS: &[Claim] = &[
    ("fuzzed-messages-neither-end-the-server-nor-widen-anything", read_only),
    ("fuzzed-roots-open-nothing-that-the-operator-has-not-named", roots),
];

const OUTSIDE: &str = "/etc/pinfold-fuzz";

/// One of these words.
fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    proptest::sample::select(words).prop_map(str::to_owned)
}

fn values() -> impl Strategy<Value = Value> + Clone {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        Just(json!("danger-full-access")),
        Just(json!("touch f")),
        Just(json!(OUTSIDE)),
    ];
    let known = &[
        "command",
        "description",
        "sandbox_permissions",
        "justification",
        "file_path",
        "content",
        "name",
        "arguments",
        "inputResponses",
        "requestState",
        "_meta",
        "progressToken",
        "uri",
        "roots",
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let key = prop_oneof![14 => word(known), 1 => ".{0,10}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::hash_map(key, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Numbers of requests: those that are in use, those that nobody has, and some that are too large for anything.
fn numbers() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        3 => Just(json!("fuzz")),
        3 => (0_u64..40).prop_map(Value::from),
        1 => Just(json!(u64::MAX)),
        1 => Just(json!(i64::MIN)),
        1 => Just(json!(1e300)),
        1 => (1_usize..100_000).prop_map(|length| json!("9".repeat(length))),
        1 => values(),
    ]
}

/// Answers to questions and to the request for roots. None is a yes: that is the power of whoever speaks for the person.
fn answers() -> impl Strategy<Value = Value> + Clone {
    let action = prop_oneof![word(&["accept", "decline", "cancel", "yes", ""]).prop_map(Value::from), values()];
    let decision = prop_oneof![
        word(&["no", "0", "-1", "99", "", "1 ", "one", "workspace-write"]).prop_map(Value::from),
        Just(json!(1)),
        Just(json!(["1"])),
        Just(json!({"1": "1"})),
    ];
    let content = prop_oneof![
        3 => (decision, any::<bool>()).prop_map(|(decision, unseen)| json!({"decision": decision, "unseen": unseen})),
        1 => values(),
    ];
    let address = prop_oneof![
        word(&[
            "file:///",
            "file:///etc",
            "file:///../etc",
            "file://localhost/proc/self/root",
            "http://x/",
            "file:///%00",
            "/",
            ""
        ])
        .prop_map(Value::from),
        ".{0,60}".prop_map(|text| json!(format!("file:///{text}"))),
        values(),
    ];
    let roots = proptest::collection::vec(address.prop_map(|uri| json!({"uri": uri, "name": "x"})), 0..40);
    let result = prop_oneof![
        3 => (action, content).prop_map(|(action, content)| json!({"action": action, "content": content})),
        2 => roots.prop_map(|roots| json!({"roots": roots})),
        1 => values(),
    ];
    (numbers(), result, any::<bool>()).prop_map(|(id, result, error)| match error {
        false => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        true => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "x", "data": result}}),
    })
}

fn requests() -> impl Strategy<Value = Value> + Clone {
    let method = prop_oneof![
        12 => word(&[
            "tools/call",
            "tools/list",
            "resources/read",
            "resources/subscribe",
            "logging/setLevel",
            "completion/complete",
            "prompts/get",
            "initialize",
            "ping",
            "server/discover",
            "subscriptions/listen",
            "elicitation/create",
            "roots/list",
            "notifications/cancelled",
            "notifications/progress",
            "notifications/initialized",
            "notifications/roots/list_changed",
        ]),
        1 => ".{0,20}",
    ];
    let tool = word(&["bash", "write", "edit", "read", "list", "search", "job_output", "job_kill"]);
    let call = (tool, values(), values(), numbers()).prop_map(|(name, arguments, token, id)| {
        let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": token}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    });
    // A question that is open for a moment, for the answers above.
    let asks = (numbers(), word(&["workspace-write", "danger-full-access"])).prop_map(|(id, mode)| {
        let params = json!({"name": "bash", "arguments": more(&format!("touch f {OUTSIDE}"), &mode)});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    });
    let withdraws = (numbers(), values()).prop_map(|(id, reason)| {
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": reason}})
    });
    let changes = Just(json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
    let any = (proptest::option::of(numbers()), method, values()).prop_map(|(id, method, params)| {
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if let Some(id) = id {
            message["id"] = id;
        }
        message
    });
    prop_oneof![4 => call, 2 => asks, 2 => withdraws, 1 => changes, 4 => any]
}

fn messages() -> impl Strategy<Value = Value> {
    let one = prop_oneof![6 => requests(), 3 => answers(), 1 => values()];
    let batch = proptest::collection::vec(one.clone(), 0..8).prop_map(Value::from);
    prop_oneof![10 => one, 1 => batch]
}

/// Questions wait for a moment only, or all calls would be made of them.
fn short_questions(walls: &Walls) -> Result<(), String> {
    let folder = walls.home().join(".config/pinfold");
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    std::fs::write(folder.join("config.toml"), "[approval]\ntimeout = 1\n").map_err(|e| e.to_string())?;
    for path in [walls.home().join(".config"), folder.clone(), folder.join("config.toml")] {
        std::os::unix::fs::chown(path, Some(walls.fixture.uid), Some(walls.fixture.uid)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Sends them all, and looks again and again.
fn flood(mut wire: Wire, look: impl Fn(&mut Wire) -> Result<(), String>) -> Result<Wire, String> {
    // Its own requests have numbers that no message has.
    wire.next = 1 << 40;
    let wire = RefCell::new(wire);
    let cases = std::env::var("PINFOLD_FUZZ_MESSAGES").ok().and_then(|it| it.parse().ok()).unwrap_or(300);
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() });
    let count = Cell::new(0_u32);
    let outcome = runner.run(&messages(), |message| {
        let mut wire = wire.borrow_mut();
        let fail = |why: String| TestCaseError::fail(why);
        wire.send(&message).map_err(fail)?;
        count.set(count.get() + 1);
        if count.get().is_multiple_of(50) {
            look(&mut wire).map_err(fail)?;
        }
        Ok(())
    });
    outcome.map_err(|e| e.to_string())?;
    let mut wire = wire.into_inner();
    look(&mut wire)?;
    // Nobody said yes to anything, and no mode was set.
    let log = wire.request("resources/read", json!({"uri": "pinfold://log"}))?;
    let log = log["result"]["contents"][0]["text"].as_str().unwrap_or_default().to_owned();
    expect(!log.contains("grant/given") && log.matches("sandbox/mode").count() == 1, &log)?;
    // The control: there were questions to answer.
    expect(log.contains("approval/asked"), log)?;
    Ok(wire)
}

const CAPABLE: fn() -> Value = || json!({"elicitation": {}, "roots": {"listChanged": true}});

fn read_only(walls: &Walls) -> Result<(), String> {
    short_questions(walls)?;
    flood(Wire::open(walls, &["--mode", "read-only"], &CAPABLE())?, alive)?;
    let left = std::fs::read_dir(walls.fixture.ws()).map_err(|e| e.to_string())?.count();
    expect_equal((left, std::path::Path::new(OUTSIDE).exists()), (0, false))
}

fn roots(walls: &Walls) -> Result<(), String> {
    short_questions(walls)?;
    let out = walls.fixture.out();
    let below = out.join("allowed");
    std::fs::create_dir(&below).map_err(|e| e.to_string())?;
    let options = ["--mode", "workspace-write", "--roots-below", &below.to_string_lossy()];
    let closed = format!("echo alive; touch {}/x 2>/dev/null || echo closed", out.display());
    let look = |wire: &mut Wire| expect_equal(wire.bash(&closed)?.as_str(), "alive\nclosed\n");
    let mut wire = flood(Wire::open(walls, &options, &CAPABLE())?, look)?;
    // The control: a root that the operator allows is taken, after all that.
    std::os::unix::fs::chown(&below, Some(walls.fixture.uid), Some(walls.fixture.uid)).map_err(|e| e.to_string())?;
    wire.met.clear();
    wire.send(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}))?;
    let asked = wire.wait_for("roots/list")?;
    let named = json!({"roots": [{"uri": format!("file://{}", below.display())}]});
    wire.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": named}))?;
    let opened = format!("touch {}/x && echo ok", below.display());
    let until = std::time::Instant::now() + crate::wire::PATIENCE;
    while !wire.bash(&opened)?.ends_with("ok\n") {
        expect(std::time::Instant::now() < until, "the root is not taken")?;
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    look(&mut wire)?;
    expect_equal(std::path::Path::new(OUTSIDE).exists(), false)
}
