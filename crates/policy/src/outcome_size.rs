//! How much room the lists of an outcome take: a command chooses what is in them, and a reader should not have to fear them.

use crate::host_files::HostFiles;
use crate::outcome::{Denial, DenialEvidence};

/// How many bytes of JSON each list takes, about; what is beyond is counted.
pub(crate) const MOST_BYTES: usize = 128 << 10;
/// What the keys and numbers of one entry take at most.
const FRAME: usize = 160;
/// What an entry that only counts takes; a list that ends in one is not cut again.
const TAIL: usize = 512;

/// What a text takes in JSON at most. What is escaped is not larger when it was read back as text.
fn escaped(bytes: &[u8]) -> usize {
    let size = |byte: &u8| match byte {
        b'"' | b'\\' => 2,
        0x20..0x7f => 1,
        _ => 6,
    };
    bytes.iter().map(size).sum()
}

fn size(denial: &Denial) -> usize {
    let texts = [&denial.operation, &denial.errno, &denial.rule, &denial.text].into_iter().flatten();
    let path = denial.path.iter().map(|path| escaped(path.as_os_str().as_encoded_bytes()));
    let name = denial.process.iter().map(|process| escaped(process.name.as_bytes()));
    FRAME + path.chain(name).chain(texts.map(|text| escaped(text.as_bytes()))).sum::<usize>()
}

/// Returns how many of these fit.
fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut left = MOST_BYTES;
    sizes.take_while(|size| left.checked_sub(*size).map(|less| left = less).is_some()).count()
}

/// Cuts a list of refusals; its last entry then counts those that are left out.
pub(crate) fn bound_denials(mut denials: Vec<Denial>) -> Vec<Denial> {
    if denials.iter().map(size).sum::<usize>() <= MOST_BYTES + TAIL {
        return denials;
    }
    let left_out = denials.split_off(fitting(denials.iter().map(size)));
    let known = left_out.iter().map(|denial| denial.evidence).find(|grade| *grade != DenialEvidence::Inferred);
    denials.push(Denial {
        count: left_out.iter().fold(0, |sum, denial| sum.saturating_add(denial.count)),
        text: Some("further refusals, which are only counted".to_owned()),
        ..Denial::known(known.unwrap_or(DenialEvidence::Inferred))
    });
    denials
}

/// Cuts a list of files; its number says how many are left out.
pub(crate) fn bound_host_files(mut found: HostFiles) -> HostFiles {
    let sizes = found
        .changes
        .iter()
        .map(|file| FRAME + escaped(file.path.as_os_str().as_encoded_bytes()) + escaped(file.obeyed_by.as_bytes()));
    let left_out = found.changes.split_off(fitting(sizes));
    found.more = found.more.saturating_add(left_out.len() as u64);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_files::{HostChange, HostFile, HostFileType};
    use crate::obeyed::ObeyedKind;
    use crate::outcome::{Ending, Outcome, StatusEvidence};
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    fn huge(name: usize) -> std::path::PathBuf {
        let mut bytes = vec![if name.is_multiple_of(2) { 0xff } else { 1 }; 4000];
        bytes.extend(name.to_string().bytes());
        OsString::from_vec(bytes).into()
    }

    #[test]
    fn lists_are_bounded_in_bytes_and_count_what_is_left_out() {
        let denial = |name| Denial { path: Some(huge(name)), count: 2, ..Denial::known(DenialEvidence::Broker) };
        let file = |name| HostFile {
            path: huge(name),
            kind: ObeyedKind::Git,
            obeyed_by: "git".to_owned(),
            change: HostChange::Created,
            file: HostFileType::File,
            mode: None,
        };
        let found = HostFiles { changes: (0..200).map(file).collect(), more: 3, ..HostFiles::default() };
        let denials = (0..300).map(denial).collect();
        let outcome = Outcome::new(Ending::Exited { code: 1 }, denials, StatusEvidence::Channel, None, 1)
            .with_host_files(Some(found));
        let text = serde_json::to_string(&outcome).unwrap();
        assert!(text.len() < 2 * (MOST_BYTES + TAIL) + FRAME, "{}", text.len());
        let [kept @ .., rest] = outcome.denials() else { panic!() };
        assert_eq!((kept.len() as u64 * 2 + rest.count, rest.evidence), (600, DenialEvidence::Broker));
        let found = outcome.host_files().unwrap();
        assert_eq!(found.changes.len() as u64 + found.more, 203);
        assert!(!kept.is_empty() && !found.changes.is_empty());
        // What was written is not cut again when it is read.
        let read: Outcome = serde_json::from_str(&text).unwrap();
        let told = |outcome: &Outcome| {
            let found = outcome.host_files().unwrap();
            (outcome.denials().len(), outcome.denials().last().cloned(), found.changes.len(), found.more)
        };
        assert_eq!(told(&read), told(&outcome));
    }

    #[test]
    fn short_lists_stay_as_they_are() {
        let denials: Vec<_> = (0..100).map(|index| Denial::inferred(format!("line {index}"))).collect();
        assert_eq!(bound_denials(denials.clone()), denials);
    }
}
