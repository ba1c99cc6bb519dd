//! The text of an answer.

use super::{
    cli::{Output, OutputOptions},
    client::ApiResponse,
    console::Console,
    fail::Fail,
    names::names,
    sort::sort_by,
    table::MAX_CELL_CHARS,
    target::Target,
    text::safe_json,
    view::{ItemOrder, ViewOptions},
};
use virtfleet_wire::layered::to_yaml;

/// The response in the format of `-o`.
pub(super) fn render(
    show: &OutputOptions,
    target: &Target,
    answer: &ApiResponse,
    console: &Console<'_>,
) -> Result<String, Fail> {
    let sorted;
    let answer = match &show.sort_by {
        Some(column) => {
            let mut body = answer.body.clone();
            sort_by(&mut body, column)?;
            sorted = ApiResponse {
                url: answer.url.clone(),
                body,
                revision: answer.revision,
            };
            &sorted
        }
        None => answer,
    };
    match show.output {
        Some(Output::Name) => names(&target.path, &answer.body),
        Some(Output::Json) => Ok(safe_json(&format!("{:#}\n", answer.body))),
        Some(Output::Yaml) => Ok(to_yaml(&answer.body)),
        None | Some(Output::Wide) => {
            let wide = show.output == Some(Output::Wide);
            // A terminal shows truncated texts; a pipe gets all of them.
            let whole = wide && !console.terminal;
            let order = match show.sort_by {
                Some(_) => ItemOrder::Requested,
                None => ItemOrder::OfApi,
            };
            let options = ViewOptions {
                wide,
                order,
                headers: !show.no_headers,
                colour: console.colour,
                max_chars: if whole { usize::MAX } else { MAX_CELL_CHARS },
                now: (console.now)(),
            };
            (target.view)(answer, &options)
        }
    }
}
