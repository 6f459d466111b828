//! One line of a log: a JSON object whose first field is the checksum of the rest.
//!
//! `{"crc":"xxxxxxxx",...}`: CRC32C over the bytes after that comma up to the newline.

use serde::Serialize;

const PREFIX: &[u8] = b"{\"crc\":\"";
const CRC_DIGITS: usize = 8;
const AFTER_CRC: &[u8] = b"\",";
/// Where the checked bytes begin.
const BODY_AT: usize = PREFIX.len() + CRC_DIGITS + AFTER_CRC.len();

/// Lines on their way to a file.
#[derive(Debug, Default, Clone)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    lines: usize,
}

impl LineBuffer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the value, which must serialise to an object with at least one field.
    /// Returns the checksum.
    pub fn push<T: Serialize>(&mut self, value: &T) -> Result<u32, serde_json::Error> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(PREFIX);
        self.bytes.extend_from_slice(&[b'0'; CRC_DIGITS]);
        // The object's own brace lands where the comma belongs; it is overwritten below.
        self.bytes.push(b'"');
        let brace = self.bytes.len();
        if let Err(error) = serde_json::to_writer(&mut self.bytes, value) {
            self.bytes.truncate(start);
            return Err(error);
        }
        if let Some(byte) = self.bytes.get_mut(brace) {
            debug_assert_eq!(*byte, b'{', "only objects can be lines");
            *byte = b',';
        }
        let crc = self.bytes.get(start + BODY_AT..).map_or(0, crc32c::crc32c);
        if let Some(digits) =
            self.bytes.get_mut(start + PREFIX.len()..start + PREFIX.len() + CRC_DIGITS)
        {
            digits.copy_from_slice(&hex_digits(crc));
        }
        self.bytes.push(b'\n');
        self.lines += 1;
        Ok(crc)
    }

    /// Appends a line that was read from another log, with its newline.
    pub fn push_raw(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.bytes.push(b'\n');
        self.lines += 1;
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn lines(&self) -> usize {
        self.lines
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lines = 0;
    }
}

fn hex_digits(crc: u32) -> [u8; CRC_DIGITS] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = [b'0'; CRC_DIGITS];
    for (digit, nibble) in out.iter_mut().zip((0..CRC_DIGITS).rev()) {
        let value = (crc >> (nibble * 4)) & 0xf;
        *digit = DIGITS.get(value as usize).copied().unwrap_or(b'0');
    }
    out
}

/// The checksum of a line without its newline, `None` when the line is damaged.
pub(crate) fn checked(line: &[u8]) -> Option<u32> {
    let rest = line.strip_prefix(PREFIX)?;
    let (digits, rest) = rest.split_at_checked(CRC_DIGITS)?;
    let body = rest.strip_prefix(AFTER_CRC)?;
    let crc = crc32c::crc32c(body);
    (digits == hex_digits(crc)).then_some(crc)
}

/// Lines that a lost newline joined, each with its place: a line begins where its first bytes stand,
/// and one byte in front of the next beginning is what was the newline.
pub(crate) fn pieces(joined: &[u8]) -> Vec<(usize, &[u8])> {
    let begins: Vec<usize> = joined
        .windows(PREFIX.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == PREFIX)
        .map(|(at, _)| at)
        .collect();
    let ends = begins.iter().skip(1).map(|next| next - 1).chain([joined.len()]);
    let ranges = begins.iter().zip(ends);
    ranges.filter_map(|(begin, end)| Some((*begin, joined.get(*begin..end)?))).collect()
}

/// First key after the checksum and its value, of a line with a single such key.
pub(crate) fn tagged(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let body = line.get(BODY_AT..)?.strip_prefix(b"\"")?.strip_suffix(b"}")?;
    let end = body.iter().position(|byte| *byte == b'"')?;
    let (key, rest) = body.split_at_checked(end)?;
    Some((key, rest.strip_prefix(b"\":")?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Serialize)]
    struct Sample<'a> {
        name: &'a str,
        number: u32,
    }

    #[test]
    fn the_shape() {
        let mut buffer = LineBuffer::new();
        let crc = buffer.push(&Sample { name: "a", number: 1 }).unwrap();
        let text = std::str::from_utf8(buffer.as_bytes()).unwrap();
        assert_eq!(text, format!("{{\"crc\":\"{crc:08x}\",\"name\":\"a\",\"number\":1}}\n"));
        serde_json::from_str::<serde_json::Value>(text).unwrap();
    }

    proptest! {
        #[test]
        fn any_flip_is_noticed(name: String, number: u32, at in 0_usize..500, bit in 0_u8..8) {
            let mut buffer = LineBuffer::new();
            buffer.push(&Sample { name: &name, number }).unwrap();
            let mut line = buffer.as_bytes()[..buffer.len() - 1].to_vec();
            prop_assert!(checked(&line).is_some());
            let at = at % line.len();
            line[at] ^= 1 << bit;
            prop_assert!(checked(&line).is_none());
        }
    }
}
