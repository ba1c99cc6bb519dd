use std::{
    fs,
    path::Path,
    sync::{Arc, Barrier},
    thread,
};

use super::*;

/// A tree with one process that says to have `count` threads, all of which are listed.
fn write(root: &Path, process: u32, threads: &[u32], state: char) {
    let zeros = ["0"; 16].join(" ");
    for thread in threads {
        let text = format!("{thread} (a) {state} {zeros} {} 0\n", threads.len());
        let directory = root.join(format!("{process}/task/{thread}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("stat"), &text).unwrap();
        fs::write(root.join(format!("{process}/stat")), &text).unwrap();
    }
}

/// The states of all threads of a process, sorted; none when it is gone.
fn states(tasks: &mut Tasks, process: u32) -> Option<Vec<u8>> {
    tasks.processes(&mut Vec::new()).unwrap();
    let stat = tasks.process(process).unwrap()?;
    let mut states = Vec::new();
    tasks.threads(process, stat, &mut states).unwrap();
    states.sort_unstable();
    Some(states)
}

#[test]
fn our_own_process_is_there_and_a_vanished_one_is_not() {
    let mut tasks = Tasks::new("/proc".into());
    let mut found = vec![u32::MAX];
    tasks.processes(&mut found).unwrap();
    assert!(found.contains(&std::process::id()) && !found.contains(&u32::MAX));
    let stat = tasks.process(std::process::id()).unwrap().unwrap();
    assert!(stat.threads >= 1);
    assert_eq!(tasks.process(u32::MAX).unwrap(), None);
    let mut states = vec![b'S'];
    tasks.threads(u32::MAX, stat, &mut states).unwrap();
    assert!(states.is_empty());
    let mut none = Tasks::new("/no/such/proc".into());
    let error = none.processes(&mut found).unwrap_err();
    assert!(matches!(error, TaskError::Processes(Errno::ENOENT)), "{error:?}");
}

#[test]
fn threads_that_come_and_go_are_counted_at_each_round() {
    let (mut tasks, id) = (Tasks::new("/proc".into()), std::process::id());
    // Other tests have threads, too: ours is found by its number.
    let kept = |tasks: &mut Tasks, thread: u32| {
        states(tasks, id).unwrap();
        tasks.kept[&id].threads.contains_key(&thread)
    };
    let barrier = Arc::new(Barrier::new(2));
    let theirs = Arc::clone(&barrier);
    let (tell, told) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        tell.send(nix::unistd::gettid().as_raw().cast_unsigned()).unwrap();
        theirs.wait();
    });
    let number = told.recv().unwrap();
    // The second round reads what the first has opened.
    assert!(kept(&mut tasks, number) && kept(&mut tasks, number));
    barrier.wait();
    thread.join().unwrap();
    // The kernel lets a thread go a moment after it was joined.
    assert!((0..1_000_000).any(|_| !kept(&mut tasks, number)));
}

#[test]
fn a_number_that_another_has_now_is_looked_up_anew() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 7, &[7, 8, 9], 'S');
    let mut tasks = Tasks::new(dir.path().into());
    assert_eq!(states(&mut tasks, 7).unwrap(), b"SSS");
    assert_eq!(tasks.kept[&7].threads.len(), 2);
    // An open file whose task is gone fails; so does each reading of a directory.
    let gone = || File::open(dir.path()).unwrap();
    write(dir.path(), 7, &[7, 8, 9], 'R');
    tasks.kept.get_mut(&7).unwrap().stat = gone();
    assert_eq!(states(&mut tasks, 7).unwrap(), b"RRR");
    tasks.kept.get_mut(&7).unwrap().threads.insert(8, gone());
    assert_eq!(states(&mut tasks, 7).unwrap(), b"RRR");
    // As many threads as before, of which one is another.
    fs::remove_dir_all(dir.path().join("7/task/9")).unwrap();
    write(dir.path(), 7, &[7, 8, 10], 'D');
    tasks.kept.get_mut(&7).unwrap().threads.insert(9, gone());
    assert_eq!(states(&mut tasks, 7).unwrap(), b"DDD");
    let numbers: Vec<_> = tasks.kept[&7].threads.keys().copied().collect();
    assert_eq!(numbers, [8, 10]);
    // Gone altogether.
    fs::remove_dir_all(dir.path().join("7")).unwrap();
    assert_eq!(states(&mut tasks, 7), None);
    assert!(tasks.kept.is_empty());
    assert_eq!(tasks.open, 0);
}

#[test]
fn beyond_the_bound_files_are_opened_each_time() {
    let dir = tempfile::tempdir().unwrap();
    for process in 1..=5 {
        write(dir.path(), process, &[process, process + 100], 'S');
    }
    let mut tasks = Tasks::new(dir.path().into());
    (tasks.most, tasks.usual) = (3, 3);
    for state in ['S', 'R'] {
        for process in 1..=5 {
            write(dir.path(), process, &[process, process + 100], state);
            assert_eq!(states(&mut tasks, process).unwrap(), [state as u8; 2]);
        }
        assert_eq!(tasks.open, 3);
    }
}

#[test]
fn of_threads_that_are_gone_nothing_stays_open() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 7, &[7, 8, 9], 'S');
    let mut tasks = Tasks::new(dir.path().into());
    states(&mut tasks, 7).unwrap();
    assert_eq!(tasks.open, 3);
    write(dir.path(), 7, &[7], 'R');
    // Whoever has one thread is not asked for its threads.
    assert_eq!(tasks.process(7).unwrap().unwrap().threads, 1);
    assert!(tasks.kept[&7].threads.is_empty() && !tasks.kept[&7].led);
    assert_eq!(tasks.open, 1);
    // Two again, of which one was there before.
    fs::remove_dir_all(dir.path().join("7/task/9")).unwrap();
    write(dir.path(), 7, &[7, 8], 'D');
    assert_eq!(states(&mut tasks, 7).unwrap(), b"DD");
    assert_eq!(tasks.open, 2);
}

#[test]
fn after_want_of_files_there_are_slowly_as_many_as_before() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 7, &[7], 'S');
    let mut tasks = Tasks::new(dir.path().into());
    (tasks.most, tasks.usual) = (40, 40);
    states(&mut tasks, 7).unwrap();
    tasks.give_back();
    assert!(tasks.kept.is_empty());
    let mut seen = vec![tasks.most];
    for _ in 0..4 {
        states(&mut tasks, 7).unwrap();
        seen.push(tasks.most);
    }
    assert_eq!(seen, [20, 28, 36, 40, 40]);
    assert_eq!(tasks.kept.len(), 1);
}

#[test]
fn a_thread_that_is_not_listed_is_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 7, &[7, 8, 9], 'S');
    fs::remove_dir_all(dir.path().join("7/task/7")).unwrap();
    let mut tasks = Tasks::new(dir.path().into());
    for _ in 0..2 {
        assert_eq!(states(&mut tasks, 7).unwrap(), b"SS");
    }
    fs::write(dir.path().join("7/task/8/stat"), "nonsense").unwrap();
    let stat = tasks.process(7).unwrap().unwrap();
    let error = tasks.threads(7, stat, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, TaskError::Parse(_)), "{error:?}");
}
