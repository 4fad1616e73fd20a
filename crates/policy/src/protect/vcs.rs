//! What version control systems other than git obey in their directory: configuration that names programs, and pointers to other
//! directories. Which names they are stands in the table of [`crate::obeyed`]; everything else there is data, so that commits work.
//!
//! References: hgrc(5), "Files"; jj's and breezy's documentation of their settings. Subversion's working copies hold nothing of
//! the kind.

use super::Effect;
use super::ProtectionRule::{self, VcsControl};
use super::git::is;
use crate::obeyed::VERSION_CONTROL;
use std::ffi::OsStr;

/// Returns the rule on a path, given as its names.
pub(super) fn rule_on(names: &[&OsStr], effect: Effect) -> Option<ProtectionRule> {
    let rows = || VERSION_CONTROL.iter().map(|row| row.name.split('/'));
    names.iter().enumerate().find_map(|(index, name)| {
        if !name.as_encoded_bytes().starts_with(b".")
            || !rows().any(|mut row| row.next().is_some_and(|it| is(name, it)))
        {
            return None;
        }
        let here = &names[index..];
        let obeyed = rows().any(|row| {
            let common = row.clone().zip(here).take_while(|(word, name)| is(name, word)).count();
            // A link above a name gives it to whatever lies behind the link.
            common == row.count() || (effect == Effect::CreateLink && common == here.len())
        });
        // The directory itself is neither made nor replaced, as `.git` is not.
        (obeyed || here.len() == 1).then_some(VcsControl)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn settings_pointers_and_the_directory_are_closed_and_data_is_open() {
        let rule = |path: &str, effect| rule_on(&Path::new(path).iter().collect::<Vec<_>>(), effect);
        for path in
            ["w/.hg", "w/.hg/hgrc", "w/a/.HG/sharedpath", "w/.jj/repo/config.toml", "w/.bzr/branch/branch.conf/x"]
        {
            for effect in [Effect::Alter, Effect::Create, Effect::CreateLink] {
                assert_eq!(rule(path, effect), Some(VcsControl), "{path}");
            }
        }
        for path in
            ["w/.hg/store/00changelog.i", "w/.hg/dirstate", "w/.jj/repo/op_store/x", "w/hg/hgrc", "w/.hgignore", "hgrc"]
        {
            assert_eq!(rule(path, Effect::CreateLink), None, "{path}");
        }
        assert_eq!(
            (rule("w/.bzr/branch", Effect::Create), rule("w/.bzr/branch", Effect::CreateLink)),
            (None, Some(VcsControl))
        );
    }
}
