mod fixed_places;
mod network_manager;
mod original;
mod services;

use std::{
    cell::RefCell,
    fs,
    os::unix::fs::symlink,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    sync::{Arc, Mutex},
};

use super::*;
use crate::{CommandError, CommandOutput, FakeCommands, NoFailPoints, Tool};

const RESOLVED: &str = "/etc/systemd/resolved.conf.d/zz-virtfleet.conf";
const NETWORKD: &str = "/etc/systemd/network/10-eth.network.d/zz-virtfleet.conf";
const LEASED: &str = "ADMIN_STATE=configured\nDNS=192.0.2.9\n";

/// Ends the process at the fail point with that number, as far as a test can.
struct Kill {
    at: usize,
    points: RefCell<Vec<String>>,
    /// Invariant that must hold at every fail point.
    holds: Box<dyn Fn(&str)>,
}

impl Kill {
    fn at(at: usize, holds: impl Fn(&str) + 'static) -> Self {
        Self {
            at,
            points: RefCell::default(),
            holds: Box::new(holds),
        }
    }
}

impl FailPoints for Kill {
    fn at(&self, point: &str) {
        (self.holds)(point);
        self.points.borrow_mut().push(point.to_owned());
        if self.points.borrow().len() > self.at {
            std::panic::panic_any("killed");
        }
    }
}

fn killed(what: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(what)).is_err_and(|why| {
        assert_eq!(why.downcast_ref(), Some(&"killed"));
        true
    })
}

/// A guest in which all services run.
fn roots_at(path: &Path) -> Roots {
    for (id, name) in [
        (1, "systemd-resolve"),
        (2, "systemd-network"),
        (3, "NetworkManager"),
    ] {
        let process = path.join(format!("proc/{id}"));
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("comm"), format!("{name}\n")).unwrap();
    }
    Roots {
        rootfs: path.to_owned(),
        procfs: path.join("proc"),
        ..Roots::default()
    }
}

fn write(text: &str, path: &str) -> DnsStep {
    DnsStep::WriteFile {
        path: path.to_owned(),
        text: text.to_owned(),
        mode: 0o644,
    }
}

fn reload(service: Service) -> DnsStep {
    DnsStep::Reload { service }
}

/// A guest with systemd-resolved and networkd. Their applied state changes when they reload, as on
/// a real system.
struct Guest {
    _dir: tempfile::TempDir,
    roots: Roots,
    commands: FakeCommands,
    /// Whether systemd-resolved has its own nameserver, and whether it uses those of the link.
    live: Arc<Mutex<(bool, bool)>>,
}

impl Guest {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = roots_at(dir.path());
        let live = Arc::new(Mutex::new((false, true)));
        let (files, services) = (roots.clone(), Arc::clone(&live));
        let commands = FakeCommands::new(move |line| {
            let mut live = services.lock().unwrap();
            match line {
                _ if line.ends_with("restart systemd-resolved") => live.0 = files.root(RESOLVED).exists(),
                "systemctl reset-failed systemd-resolved" => {}
                "networkctl reload" => live.1 = !files.root(NETWORKD).exists(),
                "resolvectl flush-caches" => {}
                _ => return None,
            }
            Some(CommandOutput::default())
        });
        Self {
            _dir: dir,
            roots,
            commands,
            live,
        }
    }

    fn steps() -> Vec<DnsStep> {
        vec![
            write("[Resolve]\nDNS=192.0.2.1\n", RESOLVED),
            write("[DHCPv4]\nUseDNS=no\n", NETWORKD),
            reload(Service::Resolved),
            reload(Service::Networkd),
            DnsStep::Flush,
        ]
    }

    /// At every moment some nameserver is configured.
    fn holds(&self) -> impl Fn(&str) + 'static {
        let live = Arc::clone(&self.live);
        move |point| {
            let live = *live.lock().unwrap();
            assert!(live.0 || live.1, "nothing resolves {point}");
        }
    }

    fn is_old(&self) -> bool {
        let there = [RESOLVED, NETWORKD].map(|path| self.roots.root(path).exists());
        there == [false; 2] && *self.live.lock().unwrap() == (false, true)
    }

    fn is_new(&self) -> bool {
        let there = [RESOLVED, NETWORKD].map(|path| self.roots.root(path).exists());
        there == [true; 2] && *self.live.lock().unwrap() == (true, false)
    }
}

#[test]
fn a_verified_change_stays_and_another_is_reverted() {
    let guest = Guest::new();
    let apply = |verify: Result<(), String>| {
        let (roots, commands) = (&guest.roots, &guest.commands);
        apply(roots, commands, &NoFailPoints, &Guest::steps(), &mut || {
            verify.clone()
        })
    };
    let error = apply(Err("192.0.2.1 does not answer".to_owned())).unwrap_err();
    assert!(error.to_string().contains("192.0.2.1 does not answer"), "{error}");
    let ApplyDnsError::RolledBack { undone, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(undone.restored, [NETWORKD, RESOLVED]);
    assert_eq!(undone.reloaded, [Service::Networkd, Service::Resolved]);
    assert!(guest.is_old() && !unfinished(&guest.roots));
    assert!(!guest.roots.root("/etc/systemd/network/10-eth.network.d").exists());

    guest.commands.take();
    let applied = apply(Ok(())).unwrap();
    assert_eq!(applied.reloaded, [Service::Resolved, Service::Networkd]);
    assert_eq!(applied.done.len(), 5);
    assert_eq!(
        guest.commands.take(),
        [
            "systemctl reset-failed systemd-resolved",
            "systemctl try-reload-or-restart systemd-resolved",
            "networkctl reload",
            "resolvectl flush-caches"
        ]
    );
    assert!(guest.is_new() && !unfinished(&guest.roots));
    assert!(recover(&guest.roots, &guest.commands).unwrap().is_none());
}

/// networkd has reloaded, and a lease arrives later.
#[test]
fn resolved_keeps_the_agents_servers_until_a_link_has_its_own() {
    let guest = Guest::new();
    let link = guest.roots.root("/run/systemd/netif/links/2");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    fs::write(&link, "ADMIN_STATE=configured\n").unwrap();
    let (files, leased) = (guest.roots.clone(), link.clone());
    let commands = FakeCommands::new(move |line| {
        let leased = leased.clone();
        if line.starts_with("networkctl") && !files.root(NETWORKD).exists() {
            std::thread::spawn(move || {
                nix::poll::poll(&mut [], 120u8).unwrap();
                fs::write(leased, LEASED).unwrap();
            });
        } else if line.starts_with("systemctl") && !files.root(RESOLVED).exists() {
            assert_eq!(fs::read_to_string(&leased).unwrap(), LEASED);
        }
        Some(CommandOutput::default())
    });
    let refused = &mut || Err("no answer".to_owned());
    let error = apply(&guest.roots, &commands, &NoFailPoints, &Guest::steps(), refused).unwrap_err();
    assert!(matches!(error, ApplyDnsError::RolledBack { .. }));
    assert_eq!(
        commands.take().last().unwrap(),
        "systemctl try-restart systemd-resolved"
    );
}

#[test]
fn a_crash_at_any_point_leaves_a_working_resolver_and_is_reverted() {
    for verified in [true, false] {
        for at in 0.. {
            let guest = Guest::new();
            let kill = Kill::at(at, guest.holds());
            let verify = &mut || verified.then_some(()).ok_or_else(|| "no answer".to_owned());
            let dead = killed(|| {
                let done = apply(&guest.roots, &guest.commands, &kill, &Guest::steps(), verify);
                assert_eq!(done.is_ok(), verified);
            });
            if !dead {
                assert!(at > if verified { 8 } else { 11 }, "{:?}", kill.points);
                break;
            }
            let recovered = recover(&guest.roots, &guest.commands).unwrap();
            let point = kill.points.borrow().last().cloned().unwrap();
            match point.as_str() {
                "before journal" => assert!(recovered.is_none() && guest.is_old(), "{point}"),
                "after end" => assert!(recovered.is_none() && guest.is_new(), "{point}"),
                _ => assert!(recovered.is_some() && guest.is_old(), "{point}"),
            }
            assert!(!unfinished(&guest.roots), "{point}");
        }
    }
}

#[test]
fn a_crash_during_recovery_is_recovered_from() {
    for at in 0.. {
        let guest = Guest::new();
        let first = Kill::at(7, |_| ());
        let (roots, commands) = (&guest.roots, &guest.commands);
        assert!(killed(|| drop(apply(
            roots,
            commands,
            &first,
            &Guest::steps(),
            &mut || Ok(())
        ))));
        assert!(guest.is_new() && unfinished(roots), "{:?}", first.points);
        let second = Kill::at(at, guest.holds());
        if !killed(|| drop(undo(roots, commands, &second, None))) {
            assert_eq!(at, 4);
            break;
        }
        assert!(unfinished(roots));
        recover(roots, commands).unwrap();
        assert!(guest.is_old() && !unfinished(roots));
    }
}

/// A guest with `/etc/resolv.conf` as a file or as a link.
fn plain(link: bool) -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let roots = roots_at(dir.path());
    fs::create_dir_all(roots.root("/etc")).unwrap();
    fs::create_dir_all(roots.root("/run")).unwrap();
    if link {
        fs::write(roots.root("/run/given.conf"), "nameserver 192.0.2.9\n").unwrap();
        symlink("../run/given.conf", roots.root(RESOLV_CONF)).unwrap();
    } else {
        fs::write(roots.root(RESOLV_CONF), "nameserver 192.0.2.9\n").unwrap();
    }
    (dir, roots)
}

fn resolves(roots: &Roots) -> String {
    fs::read_to_string(roots.root(RESOLV_CONF)).unwrap()
}

fn is_link(roots: &Roots) -> bool {
    fs::symlink_metadata(roots.root(RESOLV_CONF))
        .unwrap()
        .is_symlink()
}

const OURS: &str = "# Written by virtfleet-agent\nnameserver 192.0.2.1\n";
const OURS_AGAIN: &str = "# Written by virtfleet-agent\nnameserver 192.0.2.2\n";

fn take_over() -> Vec<DnsStep> {
    let text = OURS.to_owned();
    vec![DnsStep::ReplaceResolvConf { text }]
}

#[test]
fn the_file_is_managed_and_restored_and_no_crash_loses_it() {
    for link in [false, true] {
        for at in 0.. {
            let (_dir, roots) = plain(link);
            let commands = FakeCommands::content();
            let files = roots.clone();
            let holds = move |point: &str| assert!(resolves(&files).contains("nameserver"), "{point}");
            let kill = Kill::at(at, holds.clone());
            let dead =
                killed(|| drop(apply(&roots, &commands, &kill, &take_over(), &mut || Ok(())).unwrap()));
            if dead {
                let committed = kill.points.borrow().last().unwrap() == "after end";
                assert_eq!(
                    recover(&roots, &commands).unwrap().is_some(),
                    at > 0 && !committed
                );
                assert_eq!(
                    resolves(&roots),
                    if committed { OURS } else { "nameserver 192.0.2.9\n" }
                );
                assert_eq!(is_link(&roots), link && !committed);
                assert_eq!(original(&roots).unwrap().is_some(), committed);
                continue;
            }
            assert_eq!(at, 6, "{:?}", kill.points);
            // Again with another text: the original is kept.
            let again = DnsStep::ReplaceResolvConf {
                text: OURS_AGAIN.to_owned(),
            };
            apply(&roots, &commands, &NoFailPoints, &[again], &mut || Ok(())).unwrap();
            let kept = original(&roots).unwrap().unwrap();
            assert_eq!(kept.link.is_some(), link);
            assert_eq!(kept.text.as_deref(), Some("nameserver 192.0.2.9\n"));
            for back in 0.. {
                let steps = [DnsStep::RestoreResolvConf {
                    original: kept.clone(),
                }];
                let kill = Kill::at(back, holds.clone());
                if !killed(|| drop(apply(&roots, &commands, &kill, &steps, &mut || Ok(())).unwrap())) {
                    break;
                }
                recover(&roots, &commands).unwrap();
                if kill.points.borrow().last().unwrap() == "after end" {
                    assert_eq!(resolves(&roots), "nameserver 192.0.2.9\n");
                } else {
                    assert_eq!(resolves(&roots), OURS_AGAIN);
                    assert!(original(&roots).unwrap().is_some());
                }
            }
            assert_eq!((is_link(&roots), original(&roots).unwrap()), (link, None));
            break;
        }
    }
}

#[test]
fn files_changed_by_other_programs_are_left_alone() {
    let (_dir, roots) = plain(false);
    let commands = FakeCommands::content();
    let kill = Kill::at(3, |_| ());
    assert!(killed(|| drop(apply(
        &roots,
        &commands,
        &kill,
        &take_over(),
        &mut || Ok(())
    ))));
    assert_eq!(resolves(&roots), OURS);
    fs::write(roots.root(RESOLV_CONF), "nameserver 192.0.2.77\n").unwrap();
    let undone = recover(&roots, &commands).unwrap().unwrap();
    assert_eq!(undone.left, [RESOLV_CONF]);
    assert_eq!(resolves(&roots), "nameserver 192.0.2.77\n");
    // A removed file is not restored over another program's file.
    assert!(killed(|| drop(apply(
        &roots,
        &commands,
        &Kill::at(3, |_| ()),
        &take_over(),
        &mut || Ok(())
    ))));
    fs::remove_file(roots.root(RESOLV_CONF)).unwrap();
    recover(&roots, &commands).unwrap().unwrap();
    assert_eq!(resolves(&roots), "nameserver 192.0.2.77\n");
}

/// Fails when networkd is reloaded for the second time.
struct Failing<'a>(&'a FakeCommands, AtomicU32);
impl Commands for Failing<'_> {
    fn run(&self, tool: &Tool) -> Result<CommandOutput, CommandError> {
        let before = self.1.fetch_add(1, Ordering::Relaxed);
        if tool.to_string() == "networkctl reload" && before == 2 {
            return Ok(CommandOutput {
                code: 1,
                stderr: "Access denied".to_owned(),
                ..CommandOutput::default()
            });
        }
        self.0.run(tool)
    }
}

#[test]
fn a_failed_reload_reverts_the_change() {
    let guest = Guest::new();
    let commands = Failing(&guest.commands, AtomicU32::new(0));
    let error = apply(
        &guest.roots,
        &commands,
        &NoFailPoints,
        &Guest::steps(),
        &mut || panic!("not verified"),
    )
    .unwrap_err();
    assert!(error.to_string().contains("Access denied"), "{error}");
    assert!(guest.is_old());
    // A failed cache flush is ignored.
    let flush = FakeCommands::new(|_| None);
    let applied = apply(
        &guest.roots,
        &flush,
        &NoFailPoints,
        &[DnsStep::Flush],
        &mut || Ok(()),
    )
    .unwrap();
    assert!(applied.notes[0].contains("resolvectl"), "{applied:?}");
}

#[test]
fn nothing_is_changed_if_it_could_not_be_restored_or_an_earlier_change_is_unfinished() {
    let (_dir, roots) = plain(false);
    let commands = FakeCommands::content();
    let go = |steps: &[DnsStep]| apply(&roots, &commands, &NoFailPoints, steps, &mut || Ok(())).unwrap_err();
    fs::create_dir_all(roots.root(RESOLVED)).unwrap();
    let mut steps = take_over();
    steps.push(write("x", RESOLVED));
    assert!(matches!(go(&steps), ApplyDnsError::Unknown { .. }));
    fs::create_dir_all(roots.root(DNS_DIRECTORY)).unwrap();
    fs::write(roots.root(journal::UNDO_FILE), "{").unwrap();
    assert!(matches!(
        go(&take_over()),
        ApplyDnsError::Journal(DnsJournalError::Odd { .. })
    ));
    fs::write(
        roots.root(journal::UNDO_FILE),
        r#"{"format":1,"places":[],"services":[]}"#,
    )
    .unwrap();
    assert!(matches!(go(&take_over()), ApplyDnsError::Unfinished));
    assert_eq!(resolves(&roots), "nameserver 192.0.2.9\n");
    assert!(commands.take().is_empty());
}

#[test]
fn obstacles_are_found_before_a_change() {
    let (_dir, roots) = plain(false);
    let at_proc = fixed(&roots, Path::new("/proc")).unwrap();
    assert!(at_proc.because.contains("mount point"), "{at_proc:?}");
    assert_eq!(fixed(&roots, &roots.root(RESOLV_CONF)), None);
    assert_eq!(fixed(&roots, &roots.root("/etc/a/b/c")), None);
    let file = fs::File::open(roots.root(RESOLV_CONF)).unwrap();
    let flags = rustix::fs::ioctl_getflags(&file).unwrap_or(rustix::fs::IFlags::empty());
    // Without root, or on tmpfs, the flag cannot be set.
    if rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::IMMUTABLE).is_err() {
        return;
    }
    let commands = FakeCommands::content();
    let mut steps = vec![write("x", RESOLVED)];
    steps.extend(take_over());
    let error = apply(&roots, &commands, &NoFailPoints, &steps, &mut || Ok(())).unwrap_err();
    let seen = resolv_conf(&roots);
    rustix::fs::ioctl_setflags(&file, flags).unwrap();
    assert!(error.to_string().contains("chattr -i"), "{error}");
    assert!(seen.fixed);
    assert!(!roots.root(RESOLVED).exists() && !roots.root(DNS_DIRECTORY).exists());
}
