//! The text of an answer.

use super::{
    cli::{Output, OutputOptions},
    client::ApiResponse,
    console::Console,
    fail::Fail,
    table::MAX_CELL_CHARS,
    target::Target,
    text::safe_json,
    view::ViewOptions,
};
use virtfleet_wire::layered::to_yaml;

/// The response in the format of `-o`.
pub(super) fn render(
    show: &OutputOptions,
    target: &Target,
    answer: &ApiResponse,
    console: &Console<'_>,
) -> Result<String, Fail> {
    match show.output {
        Some(Output::Json) => Ok(safe_json(&format!("{:#}\n", answer.body))),
        Some(Output::Yaml) => Ok(to_yaml(&answer.body)),
        None | Some(Output::Wide) => {
            let wide = show.output == Some(Output::Wide);
            // A terminal shows truncated texts; a pipe gets all of them.
            let whole = wide && !console.terminal;
            let options = ViewOptions {
                wide,
                headers: !show.no_headers,
                colour: console.colour,
                max_chars: if whole { usize::MAX } else { MAX_CELL_CHARS },
                now: (console.now)(),
            };
            (target.view)(answer, &options)
        }
    }
}
