//! Plain tables for people.

use innkeeper_command::{Output, plain};

/// The gap between two columns.
const GAP: &str = "  ";

/// The text of an empty cell.
const NOTHING: &str = "-";

/// Returns rows below their headings, without empty columns.
pub(crate) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Output {
    let rows: Vec<[String; N]> = rows
        .map(|row| row.map(|cell| plain(&cell).into_owned()))
        .collect();
    let columns: Vec<usize> = (0..N)
        .filter(|column| rows.iter().any(|row| !row[*column].is_empty()))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| shown(&row[column]).chars().count());
        cells
            .chain([headings[column].len()])
            .max()
            .unwrap_or_default()
    };
    let mut out = Output::default();
    let mut push = |cells: [&str; N]| {
        let padded: Vec<String> = columns
            .iter()
            .map(|column| format!("{:<1$}", cells[*column], width(*column)))
            .collect();
        out.line(padded.join(GAP).trim_end());
    };
    push(headings);
    for row in &rows {
        push(row.each_ref().map(|cell| shown(cell)));
    }
    out
}

fn shown(cell: &str) -> &str {
    if cell.is_empty() { NOTHING } else { cell }
}
