//! `--watch`: long polls repeatedly, and prints every change until Ctrl-C.

use std::{future::Future, time::Duration};

use super::{
    changes::{self, Changes},
    cli::{Cli, Output, OutputOptions},
    client::{ApiResponse, Client},
    console::Console,
    fail::Fail,
    rendered::render,
    summary::summary,
    target::{self, Target},
    text::safe,
};

/// Duration of a long poll. On a terminal, ages are redrawn at least at this interval.
const POLL_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_TIMEOUT_ON_TERMINAL: Duration = Duration::from_secs(5);
/// Minimum interval between two responses: a large fleet changes many times a second.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// Delay before a retry while the collector is unavailable.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Watches until Ctrl-C, which is a normal end.
pub(super) fn until_interrupted(cli: &Cli, console: &mut Console<'_>) -> Result<(), Fail> {
    let client = Client::new(&cli.connection)?;
    let target = Target::of(&cli.command, &client, (console.now)())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fail::Start(error.to_string()))?;
    let done = runtime.block_on(async {
        let stop = async {
            // Without a handler, Ctrl-C ends the process.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        watch(cli, &client, &target, console, stop).await
    });
    // A running request is abandoned.
    runtime.shutdown_background();
    done
}

/// Watches until `stop`.
pub(super) async fn watch(
    cli: &Cli,
    client: &Client,
    target: &Target,
    console: &mut Console<'_>,
    stop: impl Future<Output = ()>,
) -> Result<(), Fail> {
    tokio::select! {
        done = forever(cli, client, target, console) => done,
        () = stop => Ok(()),
    }
}

async fn forever(cli: &Cli, client: &Client, target: &Target, console: &mut Console<'_>) -> Result<(), Fail> {
    let mut shown: Option<u64> = None;
    let mut before: Option<ApiResponse> = None;
    let show = target::show(&cli.command);
    loop {
        match request(client, target, shown, console.terminal).await {
            Ok((answer, line)) => {
                let Some(revision) = answer.revision else {
                    return Err(Fail::Foreign {
                        url: answer.url,
                        what: "without a revision".to_owned(),
                    });
                };
                let first = shown.is_none();
                let is_table = matches!(show.output, None | Some(Output::Wide));
                if console.terminal {
                    draw(show, console, target, &answer, line.as_deref(), first)?;
                } else if shown != Some(revision) {
                    let changes = before
                        .filter(|_| is_table)
                        .and_then(|before| changes::between(&before.body, &answer.body));
                    match changes {
                        Some(changes) => append(show, console, target, &answer, changes)?,
                        None => draw(show, console, target, &answer, line.as_deref(), first)?,
                    }
                }
                shown = Some(revision);
                before = Some(answer);
                tokio::time::sleep(MIN_INTERVAL).await;
            }
            Err(fail) if shown.is_some() && fail.is_transient() => {
                console.note(&format!("warning: {fail}; retrying"));
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(fail) => return Err(fail),
        }
    }
}

/// One response and its summary. The client blocks, so it runs on a thread of its own.
async fn request(
    client: &Client,
    target: &Target,
    known: Option<u64>,
    terminal: bool,
) -> Result<(ApiResponse, Option<String>), Fail> {
    let (client, target) = (client.clone(), target.clone());
    let requested = tokio::task::spawn_blocking(move || {
        let mut query = target.query.clone();
        let mut extra_timeout = Duration::ZERO;
        if let Some(known) = known {
            extra_timeout = if terminal {
                POLL_TIMEOUT_ON_TERMINAL
            } else {
                POLL_TIMEOUT
            };
            query.push(("wait", known.to_string()));
            query.push(("timeout", format!("{}s", extra_timeout.as_secs())));
        }
        let answer = client.get(&target.path, &query, extra_timeout)?;
        let line = summary(&client, &target, &answer);
        Ok((answer, line))
    });
    requested.await.map_err(|error| Fail::Start(error.to_string()))?
}

/// Prints changed rows, and the names of removed items.
fn append(
    show: &OutputOptions,
    console: &mut Console<'_>,
    target: &Target,
    answer: &ApiResponse,
    changes: Changes,
) -> Result<(), Fail> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    if !changes.changed.is_empty() {
        let mut rows_only = ApiResponse {
            url: answer.url.clone(),
            body: answer.body.clone(),
            revision: answer.revision,
        };
        rows_only.body["items"] = changes.changed.into();
        let rows = OutputOptions {
            no_headers: true,
            ..show.clone()
        };
        text = render(&rows, target, &rows_only, console)?;
    }
    for gone in changes.gone {
        text.extend(["gone: ", &safe(&gone, usize::MAX), "\n"]);
    }
    Ok(console.print(&text)?)
}

/// Redraws on a terminal, appends elsewhere.
fn draw(
    show: &OutputOptions,
    console: &mut Console<'_>,
    target: &Target,
    answer: &ApiResponse,
    line: Option<&str>,
    first: bool,
) -> Result<(), Fail> {
    let mut text = render(show, target, answer, console)?;
    if console.terminal {
        if let Some(line) = line {
            text.extend(["\n", line, "\n"]);
        }
        if first {
            console.clear()?;
        }
        return Ok(console.redraw(&text)?);
    }
    if !first {
        let between = match show.output {
            Some(Output::Yaml) => "---\n",
            Some(Output::Json) => "",
            _ => "\n",
        };
        text.insert_str(0, between);
    }
    console.print(&text)?;
    if let Some(line) = line {
        console.note(line);
    }
    Ok(())
}
