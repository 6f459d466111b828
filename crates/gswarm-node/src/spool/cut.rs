//! Makes a record fit: what is too long is cut, and the cut is told.

use gswarm_types::{Body, Cells, Values};

/// How much of the text of a cut event or mark stays.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// About half of the body, and how many parts are gone; `None` when nothing can be taken away.
pub(super) fn halve(body: Body) -> Option<(Body, usize)> {
    match body {
        Body::Values(values) => {
            let mut cells = values.cells.as_slice().to_vec();
            let kept = cells.iter().filter(|cell| cell.is_some()).count();
            let gone = kept.div_ceil(2);
            if gone == 0 {
                return None;
            }
            for cell in cells.iter_mut().rev().filter(|cell| cell.is_some()).take(gone) {
                *cell = None;
            }
            let values = Values { table: values.table, cells: Cells::new(cells) };
            Some((Body::Values(values), gone))
        },
        Body::Processes(mut rows) => cut_rows(&mut rows).map(|gone| (Body::Processes(rows), gone)),
        Body::Topology(mut links) => cut_rows(&mut links).map(|gone| (Body::Topology(links), gone)),
        Body::Event(mut event) => {
            let gone = cut_text(&mut event.message)?;
            Some((Body::Event(event), gone))
        },
        Body::Mark(mut mark) => {
            let gone = cut_text(&mut mark.name)?;
            Some((Body::Mark(mark), gone))
        },
        Body::Rejected { mut reason } => {
            let gone = cut_text(&mut reason)?;
            Some((Body::Rejected { reason }, gone))
        },
        Body::Loss(_) | Body::End | Body::Opaque { .. } => None,
    }
}

fn cut_rows<T>(rows: &mut Vec<T>) -> Option<usize> {
    let before = rows.len();
    if before == 0 {
        return None;
    }
    rows.truncate(before / 2);
    Some(before - rows.len())
}

fn cut_text(text: &mut String) -> Option<usize> {
    let before = text.len();
    if before <= TEXT_BYTES_MAX {
        return None;
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    Some(before - end)
}
