//! The header of a `.npy` file, versions 1.0, 2.0 and 3.0: a codec of our own, because a header is the word of a stranger.
//!
//! A header is a Python dictionary with the keys `descr`, `fortran_order` and `shape`, and no others:
//!
//! ```text
//! header = "{" [ entry { "," entry } [ "," ] ] "}" { " " } "\n"      spaces between any two parts
//! entry  = ("'descr'" ":" string) | ("'fortran_order'" ":" ("True" | "False")) | ("'shape'" ":" tuple)
//! tuple  = "(" ")" | "(" number "," [ number { "," number } [ "," ] ] ")"
//! ```
//!
//! Strings are in single or double quotes, without escapes; numbers have no sign and no zero in front. All text is ASCII: version 3.0
//! allows more only in the names of fields of records, and records are not read. Nothing is done in more than one pass, and nothing is
//! allocated but 64 lengths.
//!
//! A header has no checksum. With the length of the file, which must be exact, every flip of a single bit is still found, but those that
//! mean the same (version 2.0 as 3.0, `|u1` as `<u1`) and those in the shape of an array without elements; these only a manifest finds.

use crate::element::{array_bytes, element_from_npy, npy_descr, shown};
use reshard::axis::MAX_LEN;
use reshard::{ElementType, Error, ErrorKind, MemoryOrder, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The most dimensions that NumPy has.
const MAX_DIMS: usize = 64;
/// The longest dictionary: more than 64 dimensions of any length need.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// NumPy pads headers to a multiple of this.
const ALIGNMENT: usize = 64;
/// NumPy leaves room for as many digits in the dimension that may grow.
const GROWTH_DIGITS: usize = 21;

/// What the header of a `.npy` file says.
///
/// ```
/// use reshard_shards::Npy;
/// let npy = Npy::new("f64".parse()?, false, vec![3, 4])?;
/// let header = npy.write();
/// assert_eq!(npy.file_bytes(), 128 + 3 * 4 * 8);
/// assert_eq!(Npy::read(&header, npy.file_bytes())?, npy);
/// assert!(Npy::read(&header, npy.file_bytes() + 1).is_err()); // the length of the file must be exact
/// # Ok::<(), reshard::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Npy {
    element: ElementType,
    fortran_order: bool,
    shape: Vec<u64>,
    data_start: u64,
    data_bytes: u64,
}

impl Npy {
    /// A reader that has the first bytes of a file, up to this many, has the whole header.
    pub const MAX_HEADER_BYTES: usize = 12 + MAX_TEXT_BYTES;

    /// No header is shorter: the shortest dictionary with its three keys.
    pub(crate) const MIN_HEADER_BYTES: u64 = 64;

    /// The header of an array, as it is written. In Fortran order the first index runs fastest.
    pub fn new(element: ElementType, fortran_order: bool, shape: Vec<u64>) -> Result<Self> {
        let data_bytes = data_bytes(element, &shape)?;
        let mut npy = Self { element, fortran_order, shape, data_start: 0, data_bytes };
        npy.data_start = npy.write().len() as u64;
        npy.length()?;
        Ok(npy)
    }

    /// Type of the elements. bf16 and the two f8 are bytes(2) and bytes(1) here, for NumPy has no names for them.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// True if the first index runs fastest, false if the last.
    pub fn fortran_order(&self) -> bool {
        self.fortran_order
    }

    /// Which index runs fastest, in the words of layouts.
    pub fn order(&self) -> MemoryOrder {
        if self.fortran_order { MemoryOrder::ColMajor } else { MemoryOrder::RowMajor }
    }

    /// Number of elements in each dimension, 0 to 64 dimensions.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Bytes of the header: the first element is at this offset.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// Bytes of the elements.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.data_start + self.data_bytes
    }

    fn length(&self) -> Result<u64> {
        self.data_start.checked_add(self.data_bytes).ok_or_else(|| too_large(&self.shape))
    }

    /// How long the header claims to be, from its first 12 bytes; none if this is no header.
    pub(crate) fn header_bytes(first: &[u8]) -> Option<usize> {
        match *first.strip_prefix(MAGIC)? {
            [1, _, a, b, ..] => Some(10 + usize::from(u16::from_le_bytes([a, b]))),
            [2 | 3, _, a, b, c, d, ..] => {
                Some(12_usize.saturating_add(u32::from_le_bytes([a, b, c, d]) as usize))
            }
            _ => None,
        }
    }

    /// Reads a header from the first bytes of a file (all of them, or [`Npy::MAX_HEADER_BYTES`]). The length of the file must be that of
    /// header and elements, exactly: files with bytes after the last element are refused, for nobody knows what they mean.
    pub fn read(first: &[u8], file_bytes: u64) -> Result<Self> {
        let (data_start, text) = text_of(first, file_bytes)?;
        let Entries { descr, fortran_order, shape } = Cursor { text, at: 0 }.header()?;
        let (Some(descr), Some(fortran_order), Some(shape)) = (descr, fortran_order, shape) else {
            return Err(wrong(
                "has not all of the keys 'descr', 'fortran_order' and 'shape'; each must be there",
            ));
        };
        let element = element_from_npy(descr)?;
        let data_bytes = data_bytes(element, &shape)?;
        let npy = Self { element, fortran_order, shape, data_start, data_bytes };
        let expected = npy.length()?;
        if expected != file_bytes {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "the .npy file has {file_bytes} bytes, but header and {} elements of {} make {expected}; it is {}",
                    data_bytes / element.bytes(),
                    npy_descr(element),
                    if file_bytes < expected {
                        "cut off"
                    } else {
                        "longer than it says, which is not accepted"
                    }
                ),
            ));
        }
        Ok(npy)
    }

    /// The header as NumPy writes it, byte by byte: version 1.0, padded to a multiple of 64, with room for the first dimension (the last
    /// in Fortran order) to grow.
    pub fn write(&self) -> Vec<u8> {
        let lengths: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        let growing = if self.fortran_order { lengths.last() } else { lengths.first() };
        let room = growing.map_or(0, |digits| GROWTH_DIGITS.saturating_sub(digits.len()));
        let mut text = format!(
            "{{'descr': '{}', 'fortran_order': {}, 'shape': ({}{}), }}{}",
            npy_descr(self.element),
            if self.fortran_order { "True" } else { "False" },
            lengths.join(", "),
            if lengths.len() == 1 { "," } else { "" },
            " ".repeat(room)
        );
        let length = MAGIC.len() + 4 + text.len() + 1;
        text.push_str(&" ".repeat(ALIGNMENT - length % ALIGNMENT));
        text.push('\n');
        let text_bytes = u16::try_from(text.len()).expect("64 lengths of 20 digits are shorter");
        [&MAGIC[..], &[1, 0], &text_bytes.to_le_bytes(), text.as_bytes()].concat()
    }
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorKind::Mismatch, format!("the .npy header {why}"))
}

fn too_large(shape: &[u64]) -> Error {
    let shape = reshard::notation::print_shape(shape);
    Error::new(
        ErrorKind::TooLarge,
        format!("the .npy header claims an array of {} elements in all, more than 2^62 bytes", shown(&shape)),
    )
}

/// Bytes of all elements; each length, and all bytes together, reach 2^62 at most.
fn data_bytes(element: ElementType, shape: &[u64]) -> Result<u64> {
    if shape.len() > MAX_DIMS {
        return Err(wrong(&format!("has {} dimensions; at most {MAX_DIMS} are possible", shape.len())));
    }
    array_bytes(element, shape).ok_or_else(|| too_large(shape))
}

/// Where the elements begin, and the dictionary, whose length is checked.
fn text_of(first: &[u8], file_bytes: u64) -> Result<(u64, &[u8])> {
    let cut_off = || wrong("is cut off: the file ends before it does");
    let Some(rest) = first.strip_prefix(MAGIC) else {
        return Err(wrong("is missing: the file does not begin with \\x93NUMPY, so it is no .npy file"));
    };
    let (&[major, minor], rest) = rest.split_first_chunk::<2>().ok_or_else(cut_off)?;
    let (text_bytes, rest) = match (major, minor) {
        (1, 0) => {
            let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(cut_off)?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        (2 | 3, 0) => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
            (usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX), rest)
        }
        _ => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("the .npy header has version {major}.{minor}; 1.0, 2.0 and 3.0 are read"),
            ));
        }
    };
    if text_bytes > MAX_TEXT_BYTES {
        return Err(wrong(&format!("claims to have {text_bytes} bytes; at most {MAX_TEXT_BYTES} are read")));
    }
    let text = rest.get(..text_bytes).ok_or_else(cut_off)?;
    let data_start = (first.len() - rest.len() + text_bytes) as u64;
    if data_start > file_bytes {
        return Err(cut_off());
    }
    if !text.is_ascii() {
        return Err(wrong(
            "has characters that are not ASCII; only records may have them, and records are not read",
        ));
    }
    Ok((data_start, text))
}

#[derive(Default)]
struct Entries<'a> {
    descr: Option<&'a str>,
    fortran_order: Option<bool>,
    shape: Option<Vec<u64>>,
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn header(mut self) -> Result<Entries<'a>> {
        let mut entries = Entries::default();
        self.expect(b'{', "a dictionary")?;
        while !self.eat(b'}') {
            let key = self.string()?;
            self.expect(b':', "':' after a key")?;
            let again = match key {
                "descr" => entries.descr.replace(self.descr()?).is_some(),
                "fortran_order" => entries.fortran_order.replace(self.boolean()?).is_some(),
                "shape" => entries.shape.replace(self.tuple()?).is_some(),
                _ => return Err(wrong(&format!("has the key '{}', which is not known", shown(key)))),
            };
            if again {
                return Err(wrong(&format!("has the key '{key}' twice")));
            }
            if !self.eat(b',') {
                self.expect(b'}', "',' or '}' after a value")?;
                break;
            }
        }
        let after = &self.text[self.at..];
        match after.split_last() {
            Some((b'\n', spaces)) if spaces.iter().all(|&byte| byte == b' ') => Ok(entries),
            _ => Err(wrong("does not end with spaces and a newline after its dictionary")),
        }
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expected(&self, what: &str) -> Error {
        let rest = &self.text[self.at..self.text.len().min(self.at + 8)];
        let found = match rest {
            [] => "the end".to_string(),
            _ => format!("'{}'", shown(&String::from_utf8_lossy(rest))),
        };
        wrong(&format!("has {found} at byte {} of its dictionary, where {what} is expected", self.at))
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<()> {
        if self.eat(byte) { Ok(()) } else { Err(self.expected(what)) }
    }

    fn string(&mut self) -> Result<&'a str> {
        const WHAT: &str = "a string in quotes, without backslashes,";
        let quote = self.peek().filter(|byte| b"'\"".contains(byte)).ok_or_else(|| self.expected(WHAT))?;
        let inside = &self.text[self.at + 1..];
        let length = inside.iter().position(|&byte| byte == quote || byte == b'\\' || byte == b'\n');
        let Some(length) = length.filter(|&length| inside[length] == quote) else {
            return Err(self.expected(WHAT));
        };
        self.at += length + 2;
        std::str::from_utf8(&inside[..length]).map_err(|_| self.expected(WHAT))
    }

    fn descr(&mut self) -> Result<&'a str> {
        if self.peek() == Some(b'[') {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the .npy header describes records (a list of fields), which are not read; view them as raw bytes, in NumPy \
                 with .view('V24') or the like",
            ));
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool> {
        self.peek();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected("True or False"))
    }

    fn number(&mut self) -> Result<u64> {
        const WHAT: &str = "a length, from 0 to 2^62 and without a zero in front,";
        self.peek();
        let rest = &self.text[self.at..];
        // No length of 20 digits is accepted: whatever is longer need not be read.
        let digits = rest.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
        let plain = digits == 1 || (2..20).contains(&digits) && rest[0] != b'0';
        let text = std::str::from_utf8(&rest[..digits]).ok().filter(|_| plain);
        let number = text.and_then(|text| text.parse().ok()).filter(|&number| number <= MAX_LEN);
        let number = number.ok_or_else(|| self.expected(WHAT))?;
        self.at += digits;
        Ok(number)
    }

    fn tuple(&mut self) -> Result<Vec<u64>> {
        self.expect(b'(', "a tuple of lengths")?;
        let mut shape = Vec::new();
        while !self.eat(b')') {
            if shape.len() == MAX_DIMS {
                return Err(wrong(&format!(
                    "has more than {MAX_DIMS} dimensions, the most that are possible"
                )));
            }
            shape.push(self.number()?);
            if !self.eat(b',') {
                // In Python, (3) is a number and (3,) a tuple.
                if shape.len() == 1 {
                    return Err(self.expected("',' after the only length"));
                }
                self.expect(b')', "',' or ')' after a length")?;
                break;
            }
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests;
