//! The commands that a page shows.

/// The commands of the `console` blocks of a page, by block: lines after `$ `, with the lines to
/// which a backslash, a pipe or `&&` at the end leads.
pub(crate) fn blocks(page: &str) -> Vec<Vec<String>> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line != "```console" {
            continue;
        }
        let (mut commands, mut goes_on) = (Vec::<String>::new(), false);
        for line in lines.by_ref().take_while(|line| *line != "```") {
            let mut is_command = true;
            if let Some(command) = line.strip_prefix("$ ") {
                commands.push(command.to_owned());
            } else if goes_on && let Some(command) = commands.last_mut() {
                command.push('\n');
                command.push_str(line);
            } else {
                is_command = false;
            }
            goes_on = is_command && line.ends_with(['\\', '|', '&']);
        }
        blocks.push(commands);
    }
    blocks
}

/// The text of a section of the second level.
pub(crate) fn section<'p>(page: &'p str, heading: &str) -> Option<&'p str> {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n"))?;
    Some(rest.split_once("\n## ").map_or(rest, |(section, _)| section))
}

#[test]
fn commands_of_a_page_are_read_as_a_shell_runs_them() {
    let page = "# A\n\n## B\n```console\n$ a b |\n    c\nout |\nput\n$ d \\\n  --e &&\n  f\n```\n```sh\nf\n```\n\n## G\n```console\n$ h\n```\n";
    let expected = [vec!["a b |\n    c", "d \\\n  --e &&\n  f"], vec!["h"]];
    assert_eq!(blocks(page), expected);
    assert_eq!(blocks(section(page, "B").unwrap_or_default()), expected[..1]);
    assert_eq!(section(page, "C"), None);
}
