//! Whether the file of a stopped session still lies where it was written.

use std::io;
use std::path::Path;

use gswarm_api::body::StoppedBody;
use gswarm_store::Disk;
use gswarm_types::SessionId;

/// Blocks: people delete and move finished files, so the disk is asked and not the book.
pub(super) fn look_for(
    disk: &dyn Disk,
    key: Option<&str>,
    mut stopped: StoppedBody,
) -> StoppedBody {
    let session = &mut stopped.session;
    let is_gone = session.output_file.as_deref().is_some_and(|file| is_gone(disk, Path::new(file)));
    if is_gone {
        session.output_file = None;
        // A name means the newest session of that name, which need not be this one.
        let by_id = key.is_some_and(|key| key.parse::<SessionId>().is_ok());
        let (flag, value) =
            if by_id { ("--session-id", &session.id) } else { ("--name", &session.name) };
        let name = &session.name;
        stopped.export_note = Some(format!(
            "file no longer there: export it again with `gswarm profiler export {flag} {value} -o {name}.json`"
        ));
    }
    stopped
}

/// A file that cannot be looked at for another reason counts as there.
fn is_gone(disk: &dyn Disk, path: &Path) -> bool {
    matches!(disk.open(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}
