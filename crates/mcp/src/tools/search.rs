//! Lines and paths that match.

use crate::core::{Core, Ready};
use crate::tools::Hold;
use crate::tools::arguments::Arguments;
use crate::tools::files::{fence, place};
use crate::tools::reply::{Refusal, Reply, done};
use pinfold_fence::search::{LinePattern, SearchOptions, spelled};
use pinfold_policy::quote::{quote_if_needed, readable};
use serde_json::json;
use std::path::Path;

/// How many results there are unless the call says so.
const RESULTS: usize = 200;
/// How many there can be.
const MOST_RESULTS: u64 = 1000;
/// How much text there is at most, in bytes.
const MOST_BYTES: usize = 64_000;

/// Searches.
pub(crate) fn search(core: &Core, standing: &Ready, mut arguments: Arguments, hold: &Hold) -> Result<Reply, Refusal> {
    let pattern = arguments.text("pattern")?.filter(|pattern| !pattern.is_empty());
    let glob = arguments.text("glob")?.filter(|glob| !glob.is_empty());
    let path = arguments.text("path")?.unwrap_or_default();
    let (literal, any_case) = (arguments.flag("literal")?, arguments.flag("ignore_case")?);
    let (hidden, ignored) = (arguments.flag("hidden")?, arguments.flag("no_ignore")?);
    let results = arguments.count("max_results", MOST_RESULTS)?.unwrap_or(RESULTS);
    arguments.finish()?;
    let options = SearchOptions { hidden, ignored, results, abort: hold.abort.clone() };
    let fence = fence(core, standing, None)?;
    let place = place(core, &path);
    let place = Path::new(&place);
    // What is found can be named to the other tools as it stands here.
    let named = |found: &Path| spelled(Path::new(&path), found);
    let mut text = String::new();
    let mut cut = false;
    let mut push = |line: &str| {
        let fits = text.len() + line.len() <= MOST_BYTES;
        cut |= !fits;
        if fits {
            text.push_str(line);
        }
        fits
    };
    let (mut structured, truncated, skipped) = match (&pattern, &glob) {
        (Some(pattern), files) => {
            let pattern = LinePattern { text: pattern, literal, any_case, files: files.as_deref() };
            let found = fence.grep(place, &pattern, &options)?;
            let shown = found
                .results
                .iter()
                .take_while(|it| push(&format!("{}:{}:{}\n", quote_if_needed(named(&it.path)), it.line, it.text)));
            let shown: Vec<_> =
                shown.map(|it| json!({"path": readable(named(&it.path)), "line": it.line, "text": it.text})).collect();
            (json!({"kind": "found", "matches": shown}), found.truncated, found.skipped)
        }
        (None, Some(glob)) => {
            let found = fence.glob(place, glob, &options)?;
            let each = found.results.iter().map(|path| named(path));
            let shown: Vec<_> = each.take_while(|path| push(&format!("{}\n", quote_if_needed(path)))).collect();
            let shown: Vec<_> = shown.iter().map(readable).collect();
            (json!({"kind": "found", "paths": shown}), found.truncated, 0)
        }
        (None, None) => return Err(Refusal::arguments("invalid pattern: give a pattern, a glob, or both")),
    };
    let truncated = truncated || cut;
    if text.is_empty() {
        text.push_str("(nothing found)\n");
    }
    if truncated {
        text.push_str("[there is more: narrow the search, or raise max_results]\n");
    }
    if skipped > 0 {
        text.push_str(&format!("[{skipped} files were not looked into: binary, too large or unreadable]\n"));
    }
    structured["truncated"] = truncated.into();
    structured["skipped"] = skipped.into();
    Ok(done(text, structured))
}
