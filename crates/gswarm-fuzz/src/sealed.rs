//! Sealed files: changed bytes are noticed, and what only looks right ends in an error.

use std::panic::{set_hook, take_hook};
use std::path::{Path, PathBuf};
use std::sync::Once;

use gswarm_store::SimDisk;
use gswarm_store::entry::Entry;
use gswarm_store::sealed::{self, SealError};

use crate::files::disk_with;

const DIR: &str = "/data/journal";
const SEGMENT: u64 = 1;
/// A file as a release wrote it.
const RELEASED: &[u8] =
    include_bytes!("../../gswarm-store/tests/released/1/journal/0000000001-db678d60.parquet");
const RELEASED_CRC: u32 = 0xdb67_8d60;

/// A panic of the Parquet library is caught and becomes an error; libFuzzer would end the run first.
fn let_the_store_catch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ends_the_run = take_hook();
        set_hook(Box::new(move |panic| {
            if panic.location().is_none_or(|place| place.file().contains("crates/gswarm")) {
                ends_the_run(panic);
            }
        }));
    });
}

/// A whole file when the first byte is even; else changes of the released file, three bytes each:
/// where (two bytes, little end first) and which bits to flip.
pub fn sealed_file(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let_the_store_catch();
    if first & 1 == 0 {
        return any_file(rest);
    }
    let mut changed = RELEASED.to_vec();
    for change in rest.chunks_exact(3) {
        let [low, high, flip] = change else { continue };
        let at = usize::from(u16::from_le_bytes([*low, *high])) % changed.len();
        changed[at] ^= flip;
    }
    let read = entries(&changed, RELEASED_CRC);
    if changed == RELEASED {
        assert!(read.is_ok(), "the released file can be read");
    } else {
        assert!(read.is_err(), "a changed file was taken for what was written");
    }
    any_file(&changed);
}

/// A file with a checksum that fits: only its content can be wrong.
fn any_file(bytes: &[u8]) {
    let crc = crc32c::crc32c(bytes);
    match entries(bytes, crc) {
        Ok(read) => {
            let again = entries(bytes, crc).map_err(|error| error.to_string());
            assert_eq!(again.as_ref(), Ok(&read), "the same file reads the same");
        },
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn entries(bytes: &[u8], crc: u32) -> Result<Vec<Entry>, SealError> {
    let name = format!("{SEGMENT:010}-{crc:08x}.parquet");
    let (disk, _): (SimDisk, _) = disk_with([(PathBuf::from(DIR).join(name), bytes)]);
    let mut entries = Vec::new();
    sealed::read(&disk, Path::new(DIR), SEGMENT, &mut |entry| entries.push(entry))?;
    Ok(entries)
}
