//! The configuration that sessions and calls start from, in layers: built in, the user's file, the project's file,
//! flags. A later layer decides, except that a project file may only tighten: whoever can write the workspace can write
//! that file.
//!
//! ```text
//! built in  <  $PINFOLD_CONFIG, or pinfold/config.toml in $XDG_CONFIG_HOME or ~/.config  <  pinfold.toml  <  flags
//! ```
//!
//! | module | idea |
//! |---|---|
//! | `file` | the grammar of a file |
//! | `layer` | what one source says, key by key, and where it says so |
//! | `merge` | which key is tighter than which |
//! | `find` | where files are, and which are trusted |

mod file;
mod find;
mod layer;
mod merge;

pub(crate) use find::project_text;
pub use find::{PROJECT_FILE, Places};
pub use layer::{AllowRule, Layer, Origin, PresetDefinition, RuleScope, Source, Stated};
pub(crate) use merge::protect;
pub use merge::{Decided, Deployment};
