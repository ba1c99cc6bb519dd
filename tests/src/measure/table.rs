//! Aligned tables for the benchmarks.

/// Rows of cells under a header; the first column is left-aligned, the others are right-aligned.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns.
    pub fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(ToString::to_string).collect()],
        }
    }

    /// Adds a row, with as many cells as the header.
    pub fn row(&mut self, cells: &[&str]) {
        self.rows.push(cells.iter().map(ToString::to_string).collect());
    }

    /// The table as text, one row per line.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cell = |(column, text): (usize, &String)| {
                let width = widths[column];
                if column == 0 {
                    format!("{text:<width$}")
                } else {
                    format!("{text:>width$}")
                }
            };
            let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
            cells.join("  ").trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }
}

#[test]
fn columns_are_aligned() {
    let mut table = Table::new(&["figure", "ours"]);
    table.row(&["a", "12 µs"]);
    assert_eq!(table.render(), "figure   ours\na       12 µs\n");
}
