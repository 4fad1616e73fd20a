use super::*;

/// A command under Landlock alone can do that in workspace-write; nobody could start anything after it.
#[test]
fn what_a_command_closed_to_us_is_opened_again() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("pinfold");
    drop(RuntimeDir::open(Some(&root)).unwrap());
    let close = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    [root.join("plans"), root.join("temp"), root.clone()].iter().for_each(|path| close(path, 0));
    let runtime = RuntimeDir::open(Some(&root)).unwrap();
    let kept = runtime.kept_temp("workspace-1").unwrap();
    close(&kept, 0o100);
    runtime.kept_temp("workspace-1").unwrap();
    for path in [&root, &root.join("plans"), &root.join("temp"), &kept] {
        assert_eq!(mode(path), 0o700, "{path:?}");
    }
    // What is open to others is still refused.
    drop(runtime);
    close(&root, 0o710);
    assert!(RuntimeDir::open(Some(&root)).is_err());
}

#[test]
fn a_dropped_runtime_directory_leaves_nothing_of_its_process() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("pinfold");
    let runtime = RuntimeDir::open(Some(&root)).unwrap();
    let call = runtime.call_directory().unwrap();
    assert_eq!(std::fs::metadata(call.path()).unwrap().mode() & 0o7777, 0o700);
    let plan = runtime.plan_file(b"x\0").unwrap();
    assert_eq!(std::fs::metadata(&plan).unwrap().mode() & 0o7777, 0o600);
    drop((call, plan, runtime));
    let left: Vec<_> = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(std::fs::read_dir(root.join("plans")).unwrap().count(), 0);
}

#[test]
fn what_a_command_closed_to_us_is_opened_again_and_what_is_open_to_others_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("pinfold");
    drop(RuntimeDir::open(Some(&root)).unwrap());
    let mode = |mode| std::fs::set_permissions(&root, std::fs::Permissions::from_mode(mode)).unwrap();
    for closed in [0, 0o600, 0o300] {
        mode(closed);
        drop(RuntimeDir::open(Some(&root)).unwrap());
        assert_eq!(std::fs::metadata(&root).unwrap().mode() & 0o7777, 0o700, "{closed:o}");
    }
    for open in [0o070, 0o007, 0o755] {
        mode(open);
        assert!(RuntimeDir::open(Some(&root)).is_err(), "{open:o}");
    }
    mode(0o700);
}

#[test]
fn what_a_dead_process_left_is_swept_and_what_a_living_one_has_is_not() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("pinfold");
    let living = RuntimeDir::open(Some(&root)).unwrap();
    let dead = root.join("process-1-x");
    std::fs::create_dir_all(dead.join("call")).unwrap();
    std::fs::write(root.join("process-1-x.lock"), "").unwrap();
    let _other = RuntimeDir::open(Some(&root)).unwrap();
    assert!(!dead.exists() && !root.join("process-1-x.lock").exists());
    assert!(living.process.path.exists());
}

#[test]
fn what_was_closed_to_its_owner_or_lies_deep_is_removed_too() {
    let base = tempfile::tempdir().unwrap();
    let outside = base.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let close = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    close(&outside, 0o500);
    let tree = base.path().join("tree");
    for path in ["a/b/c", "a/d", "e"] {
        std::fs::create_dir_all(tree.join(path)).unwrap();
        std::fs::write(tree.join(path).join("f"), "").unwrap();
    }
    std::os::unix::fs::symlink(&outside, tree.join("e/link")).unwrap();
    for path in ["a/b/c", "a/b", "a/d", "a", "e"] {
        close(&tree.join(path), 0);
    }
    // Root needs no help; the walk is the same.
    empty_out(&tree).unwrap();
    assert_eq!(std::fs::read_dir(&tree).unwrap().count(), 0);
    assert_eq!(std::fs::metadata(&outside).unwrap().mode() & 0o777, 0o500);
    std::fs::create_dir(tree.join("a")).unwrap();
    close(&tree.join("a"), 0);
    remove_all(&tree).unwrap();
    assert!(!tree.exists() && outside.exists());
    assert!(remove_all(&tree).is_ok());
}

#[test]
fn a_path_longer_than_the_kernel_takes_is_removed_too() {
    let base = tempfile::tempdir().unwrap();
    let tree = base.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut current = rustix::fs::open(&tree, flags, Mode::empty()).unwrap();
    let name = "n".repeat(20);
    for _ in 0..300 {
        rustix::fs::mkdirat(&current, &name, Mode::from_raw_mode(0o700)).unwrap();
        current = rustix::fs::openat(&current, &name, flags, Mode::empty()).unwrap();
    }
    drop(current);
    empty_out(&tree).unwrap();
    assert_eq!(std::fs::read_dir(&tree).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_removed_keeps_its_lock() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("pinfold");
    let _first = RuntimeDir::open(Some(&root)).unwrap();
    // A file where a directory is expected cannot be removed as one.
    std::fs::write(root.join("process-1-x"), "").unwrap();
    std::fs::write(root.join("process-1-x.lock"), "").unwrap();
    let _second = RuntimeDir::open(Some(&root)).unwrap();
    assert!(root.join("process-1-x.lock").exists());
}

#[test]
fn temp_directories_of_no_session_go_a_day_after_their_last_use() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("pinfold");
    let runtime = RuntimeDir::open(Some(&root)).unwrap();
    let day_before = SystemTime::now() - LIFE - Duration::from_secs(1);
    for (owner, stays) in [("workspace-1-2", false), ("workspace-1-3", true), ("session-x", true)] {
        let temp = runtime.kept_temp(owner).unwrap();
        std::fs::write(temp.join("file"), "").unwrap();
        File::open(&temp).unwrap().set_modified(day_before).unwrap();
        if owner == "workspace-1-3" {
            runtime.kept_temp(owner).unwrap();
        }
        let _other = RuntimeDir::open(Some(&root)).unwrap();
        assert_eq!(temp.exists(), stays, "{owner}");
    }
}

#[test]
fn an_open_or_linked_directory_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let open = base.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(RuntimeDir::open(Some(&open)).unwrap_err().contains("mode 755"));
    let link = base.path().join("link");
    std::os::unix::fs::symlink(&open, &link).unwrap();
    assert!(RuntimeDir::open(Some(&link)).unwrap_err().contains("not a directory"));
    assert!(RuntimeDir::open(Some(Path::new("x"))).unwrap_err().contains("not an absolute path"));
}

/// What an earlier command put in a place that is a runtime directory later.
#[test]
fn a_link_in_the_place_of_a_part_leads_nowhere() {
    for part in ["plans", "temp", "verdicts"] {
        let base = tempfile::tempdir().unwrap();
        let (home, root) = (base.path().join("home"), base.path().join("pinfold"));
        for directory in [&home, &root] {
            make_private(directory).unwrap();
        }
        let old = SystemTime::now() - LIFE - Duration::from_secs(1);
        let kept = home.join("workspace-1-1");
        std::fs::write(&kept, "kept").unwrap();
        File::options().write(true).open(&kept).unwrap().set_modified(old).unwrap();
        // The control: in a directory of ours such a file goes.
        let ours = private_part(&root, "plans").unwrap().join("plan-1");
        std::fs::copy(&kept, &ours).unwrap();
        File::options().write(true).open(&ours).unwrap().set_modified(old).unwrap();
        sweep(&root);
        assert!(!ours.exists());
        std::fs::remove_dir(root.join("plans")).unwrap();
        std::os::unix::fs::symlink(&home, root.join(part)).unwrap();
        sweep(&root);
        assert!(kept.exists(), "{part}");
        assert!(private_part(&root, part).unwrap_err().contains("not a directory"));
        let opened = RuntimeDir::open(Some(&root));
        assert_eq!(opened.is_err(), part != "verdicts", "{part}");
        assert!(kept.exists(), "{part}");
        std::fs::remove_file(root.join(part)).unwrap();
        std::fs::DirBuilder::new().mode(0o755).create(root.join(part)).unwrap();
        assert!(private_part(&root, part).unwrap_err().contains("mode 755"));
    }
}
