//! Tables: columns as wide as their widest cell, two spaces apart.

/// Lays rows out under their headings. Cells may hold terminal marks, which take no room.
pub fn table<R: AsRef<[String]>>(headings: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let rows: Vec<R> = rows.into_iter().collect();
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
            *width = (*width).max(shown(cell));
        }
    }
    let mut out = String::new();
    line(&mut out, &widths, headings.iter().copied());
    for row in &rows {
        line(&mut out, &widths, row.as_ref().iter().map(String::as_str));
    }
    out
}

fn line<'c>(out: &mut String, widths: &[usize], cells: impl Iterator<Item = &'c str>) {
    let mut text = String::new();
    for (width, cell) in widths.iter().zip(cells) {
        // A row is one line, whatever a node says.
        text.push_str(&cell.replace(['\n', '\t'], " "));
        text.extend(std::iter::repeat_n(' ', width.saturating_sub(shown(cell)) + 2));
    }
    out.push_str(text.trim_end());
    out.push('\n');
}

/// How many characters a cell shows: marks (ESC to `m`) show none.
fn shown(cell: &str) -> usize {
    let mut count = 0;
    let mut in_mark = false;
    for c in cell.chars() {
        match (in_mark, c) {
            (false, '\u{1b}') => in_mark = true,
            (true, 'm') => in_mark = false,
            (true, _) => {}
            (false, _) => count += 1,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_line_up_whatever_the_marks() {
        let rows = vec![
            vec!["web-1".to_owned(), "\u{1b}[32mok\u{1b}[0m".to_owned(), "x".to_owned()],
            vec!["a".to_owned(), "failed".to_owned(), String::new()],
        ];
        let plain =
            table(&["NODE", "STATE", "WHY"], &rows).replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        assert_eq!(plain, "NODE   STATE   WHY\nweb-1  ok      x\na      failed\n");
    }

    #[test]
    fn a_row_is_one_line() {
        let rows = vec![["web-1".to_owned(), "no\nweb-2\tok".to_owned()]];
        assert_eq!(table(&["NODE", "WHY"], &rows), "NODE   WHY\nweb-1  no web-2 ok\n");
    }
}
