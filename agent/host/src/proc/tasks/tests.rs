use std::{
    fs,
    path::Path,
    sync::{Arc, Barrier},
    thread,
};

use super::*;

/// Writes a tree with one process that has these threads.
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

/// States of all threads of a process, sorted. `None` if it has exited.
fn states(tasks: &mut Tasks, process: u32) -> Option<Vec<u8>> {
    tasks.processes(&mut Vec::new()).unwrap();
    let stat = tasks.process(process).unwrap()?;
    let mut states = Vec::new();
    tasks.threads(process, stat, &mut states).unwrap();
    states.sort_unstable();
    Some(states)
}

#[test]
fn this_process_is_found_and_an_exited_one_is_not() {
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
fn new_and_exited_threads_are_counted_in_each_round() {
    let (mut tasks, id) = (Tasks::new("/proc".into()), std::process::id());
    // Other tests have threads too; this one is found by its number.
    let kept = |tasks: &mut Tasks, thread: u32| {
        states(tasks, id).unwrap();
        tasks.kept[&id].threads.contains_key(&thread)
    };
    let barrier = Arc::new(Barrier::new(2));
    let thread_barrier = Arc::clone(&barrier);
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        sender
            .send(nix::unistd::gettid().as_raw().cast_unsigned())
            .unwrap();
        thread_barrier.wait();
    });
    let number = receiver.recv().unwrap();
    // The second round reads the files that the first one opened.
    assert!(kept(&mut tasks, number) && kept(&mut tasks, number));
    barrier.wait();
    thread.join().unwrap();
    // The kernel removes a thread shortly after it was joined.
    assert!((0..1_000_000).any(|_| !kept(&mut tasks, number)));
}

#[test]
fn a_reused_number_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 7, &[7, 8, 9], 'S');
    let mut tasks = Tasks::new(dir.path().into());
    assert_eq!(states(&mut tasks, 7).unwrap(), b"SSS");
    assert_eq!(tasks.kept[&7].threads.len(), 2);
    // Reading an open file fails after its task has exited, as does reading a directory.
    let gone = || File::open(dir.path()).unwrap();
    write(dir.path(), 7, &[7, 8, 9], 'R');
    tasks.kept.get_mut(&7).unwrap().stat = gone();
    assert_eq!(states(&mut tasks, 7).unwrap(), b"RRR");
    tasks.kept.get_mut(&7).unwrap().threads.insert(8, gone());
    assert_eq!(states(&mut tasks, 7).unwrap(), b"RRR");
    // As many threads as before, but a different one among them.
    fs::remove_dir_all(dir.path().join("7/task/9")).unwrap();
    write(dir.path(), 7, &[7, 8, 10], 'D');
    tasks.kept.get_mut(&7).unwrap().threads.insert(9, gone());
    assert_eq!(states(&mut tasks, 7).unwrap(), b"DDD");
    let numbers: Vec<_> = tasks.kept[&7].threads.keys().copied().collect();
    assert_eq!(numbers, [8, 10]);
    // The process has exited.
    fs::remove_dir_all(dir.path().join("7")).unwrap();
    assert_eq!(states(&mut tasks, 7), None);
    assert!(tasks.kept.is_empty());
    assert_eq!(tasks.open, 0);
}

#[test]
fn files_beyond_the_bound_are_opened_each_time() {
    let dir = tempfile::tempdir().unwrap();
    for process in 1..=5 {
        write(dir.path(), process, &[process, process + 100], 'S');
    }
    let mut tasks = Tasks::new(dir.path().into());
    (tasks.max_open, tasks.usual) = (3, 3);
    for state in ['S', 'R'] {
        for process in 1..=5 {
            write(dir.path(), process, &[process, process + 100], state);
            assert_eq!(states(&mut tasks, process).unwrap(), [state as u8; 2]);
        }
        assert_eq!(tasks.open, 3);
    }
}

#[test]
fn files_of_exited_threads_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 7, &[7, 8, 9], 'S');
    let mut tasks = Tasks::new(dir.path().into());
    states(&mut tasks, 7).unwrap();
    assert_eq!(tasks.open, 3);
    write(dir.path(), 7, &[7], 'R');
    // The threads of a single-threaded process are not requested.
    assert_eq!(tasks.process(7).unwrap().unwrap().threads, 1);
    assert!(tasks.kept[&7].threads.is_empty() && !tasks.kept[&7].has_main_thread);
    assert_eq!(tasks.open, 1);
    // Two threads again, one of them known.
    fs::remove_dir_all(dir.path().join("7/task/9")).unwrap();
    write(dir.path(), 7, &[7, 8], 'D');
    assert_eq!(states(&mut tasks, 7).unwrap(), b"DD");
    assert_eq!(tasks.open, 2);
}

#[test]
fn after_the_limit_was_reached_the_number_of_open_files_recovers_slowly() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 7, &[7], 'S');
    let mut tasks = Tasks::new(dir.path().into());
    (tasks.max_open, tasks.usual) = (40, 40);
    states(&mut tasks, 7).unwrap();
    tasks.close_kept();
    assert!(tasks.kept.is_empty());
    let mut seen = vec![tasks.max_open];
    for _ in 0..4 {
        states(&mut tasks, 7).unwrap();
        seen.push(tasks.max_open);
    }
    assert_eq!(seen, [20, 28, 36, 40, 40]);
    assert_eq!(tasks.kept.len(), 1);
}

#[test]
fn an_unlisted_thread_is_not_counted() {
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
