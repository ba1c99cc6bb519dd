//! virtfleetctl in a real terminal (tmux): what an admin sees at 80 and at 200 columns, with
//! colours and without. `UPDATE_GOLDEN=1` writes the pages in `tests/fixtures/terminal` again.
#![expect(clippy::unwrap_used, reason = "all of it is test code, helpers too")]

use std::{
    cell::Cell,
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use virtfleet_tests::{
    bins, ports,
    process::{Launch, Process},
    scrape::Client,
    sim::{self, Options, Plan},
    skip,
    stage::STAGE_TIMEOUT,
    wait,
};

/// Timeout of a command of tmux.
const TMUX_TIMEOUT: Duration = Duration::from_secs(10);
/// Lines of the terminal: no page is longer, so nothing scrolls away.
const SCREEN_LINES: usize = 60;
/// What the shell prints after the program, with its exit code.
const END: &str = "exit-code-";

/// A terminal with this number of columns; it ends when dropped.
struct Terminal {
    tmux: PathBuf,
    socket: PathBuf,
}

impl Terminal {
    /// Runs a line of shell and keeps its screen.
    fn run(tmux: &Path, socket: PathBuf, columns: usize, line: &str) -> Result<Self> {
        let terminal = Self {
            tmux: tmux.to_owned(),
            socket,
        };
        let (columns, lines) = (columns.to_string(), SCREEN_LINES.to_string());
        let script = format!("{line}; echo {END}$?; exec sleep 600");
        terminal.tmux(&[
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &lines,
            "/bin/sh",
            "-c",
            &script,
        ])?;
        Ok(terminal)
    }

    /// The output of a command of this terminal's own server, which reads no settings.
    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        Launch::new(&self.tmux)
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(&self.socket)
            .args(arguments)
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .text(TMUX_TIMEOUT)
    }

    /// The screen with its colours as escape sequences, and the exit code, when the program has
    /// ended.
    fn screen(&self) -> Result<(String, String)> {
        wait::eventually(STAGE_TIMEOUT, "the program ends", || {
            let screen = self.tmux(&["capture-pane", "-e", "-p"])?;
            let (page, code) = screen.split_once(END).with_context(|| screen.clone())?;
            let code = code.chars().take_while(char::is_ascii_digit).collect();
            Ok((page.to_owned(), code))
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The server ends with its last session.
        if let Err(error) = self.tmux(&["kill-server"]) {
            eprintln!("tmux was not ended: {error:#}");
        }
    }
}

/// A collector of a small fleet that never changes, because it pulls no agents; its address, and
/// the name of an infra node with a VM.
fn collector(folder: &Path) -> (Process, SocketAddr, String) {
    let options = Options {
        guests: 5,
        hosts: 3,
        zones: 2,
        clusters: 2,
        ..Options::default()
    };
    let plan = Plan::new(&options).unwrap();
    let fleet = folder.join("fleet");
    sim::write_folder(&fleet, &plan).unwrap();
    let sick = &plan.guests[0];
    let paused = sim::paused_vmi(sick, &plan.hosts[sick.host].name, "IO error");
    let file = fleet.join(format!("infra/vmi-{}-{}.yaml", sick.cluster, sick.name));
    fs::write(file, paused).unwrap();
    let address = ports::free().unwrap();
    let config = folder.join("collector.yaml");
    let text = format!(
        "apiVersion: virtfleet.io/v1alpha1\nkind: CollectorConfig\ninventory: {{ folder: {} }}\n\
         server: {{ address: \"{address}\" }}\n",
        fleet.display()
    );
    fs::write(&config, text).unwrap();
    let mut process = Launch::new(bins::collector().unwrap())
        .args(["serve", "--config"])
        .arg(&config)
        .start(folder)
        .unwrap();
    process
        .wait_for(STAGE_TIMEOUT, "it is ready", |_| {
            Client::plain(address, STAGE_TIMEOUT)?.get("/readyz")?.ok()
        })
        .unwrap();
    (process, address, plan.hosts[sick.host].name.clone())
}

/// Compares a page with the golden one.
fn compare(name: &str, page: &str) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/terminal/{name}.txt"));
    // An escape sequence that a person can read in the file.
    let page = page.replace('\u{1b}', "␛");
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &page)?;
    }
    let expected = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    ensure!(
        page == expected,
        "{}: expected\n{expected}\nbut it is\n{page}",
        file.display()
    );
    Ok(())
}

#[test]
fn pages_in_a_terminal_are_golden_tier3() {
    let test = "pages_in_a_terminal_are_golden_tier3";
    let Some(tmux) = skip::need(3, test, skip::program("tmux")).unwrap() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (_collector, address, host) = collector(folder.path());
    let ctl = bins::ctl().unwrap();
    let sockets = Cell::new(0);
    let run = |columns: usize, environment: &str, arguments: &str| -> (String, String) {
        let line = format!(
            "env -i HOME=/nonexistent TERM=\"$TERM\" LC_ALL=C.UTF-8 {environment} {} --server http://{address} {arguments}",
            ctl.display()
        );
        // A server that ends still accepts connections for a moment, so each has its own socket.
        sockets.set(sockets.get() + 1);
        let socket = folder.path().join(format!("tmux-{}", sockets.get()));
        let terminal = Terminal::run(&tmux, socket, columns, &line).unwrap();
        terminal.screen().unwrap()
    };
    let mut failed = Vec::new();
    for (name, arguments, code) in [
        ("vms", "vms --sort-by name", "0"),
        ("hosts", "hosts", "0"),
        ("drain", "drain HOST -o wide", "6"),
        ("explain", "explain virtio-device-failed", "0"),
        ("missing", "vm cluster-a/worker-99", "4"),
    ] {
        let arguments = arguments.replace("HOST", &host);
        for columns in [80, 200] {
            let (page, exit) = run(columns, "", &arguments);
            assert_eq!(exit, code, "{arguments}: {page}");
            let page = page.replace(&address.to_string(), "COLLECTOR");
            failed.extend(compare(&format!("{name}-{columns}"), &page).err());
        }
        let (plain, _) = run(200, "NO_COLOR=1", &arguments);
        assert!(!plain.contains('\u{1b}'), "NO_COLOR, {arguments}: {plain:?}");
    }
    assert!(failed.is_empty(), "{failed:#?}");
    let (coloured, _) = run(200, "", "vms");
    assert!(
        coloured.contains("\u{1b}[31m"),
        "what is Critical is red: {coloured:?}"
    );
    let (dumb, _) = run(200, "TERM=dumb", "vms");
    assert!(!dumb.contains('\u{1b}'), "{dumb:?}");
}
