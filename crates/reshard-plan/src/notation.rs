//! The one-line notation of layouts: what people type, and what every value prints.
//!
//! ```text
//! pattern      = ( blocks | words ) { option }
//! blocks       = extents "/" extents                          4x4/64x64    16/3
//! words        = "(" deal { "," deal } ")" "on" extents       (cyclic(64), block) on 4x4
//! deal         = "block" | "cyclic" [ "(" number ")" ] | "gen_block" "(" number { "," number } ")"
//!              | "cuts" "(" number "@" process { "," ... } ")" | "*"
//! option       = "first=" extents                             process of the first block   first=1x0
//!              | "rank-order=" ( "row" | "col" )              how ranks number the grid    rank-order=col
//!              | "ranks=" ( number ".." number | number { "," number } )                   ranks=8..24
//! distribution = pattern "of" extents                         4x4/64x64 of 8192x8192
//! layout       = distribution { in_memory }                   4x4/64x64 of 8192x8192 memory=row
//! in_memory    = "memory=" ( "row" | "col" )                  which index of a part runs fastest, col if not said
//!              | "strides=" extents                           elements from one index to the next, in each dimension
//! extents      = number { "x" number }
//! ```
//!
//! `order=` is an older word for `rank-order=` and still read. `memory=` may stand among the options of the pattern, too.
//! Words may be upper case. Spaces may stand between any two parts. In `on`, dimensions dealt with `*` may be
//! left out as in HPF: `(block, *) on 3` is `(block, *) on 3x1`. On more processes than one, `*` is replicated: in
//! `(block, *) on 3x2` each third of the rows is on two processes. Equal values print alike, and what is printed
//! parses back to an equal value. Errors name the character and say what would be right there.

use crate::axis::{Deal, Piece};
use crate::distribution::{Distribution, Pattern, check_deal};
use crate::error::{Error, Result, counted};
use crate::grid::{Grid, RankOrder, by_x};
use crate::layout::{Layout, MemoryOrder};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents = by_x(self.grid().extents());
        let blocks: Option<Vec<u64>> = self
            .deals()
            .iter()
            .map(|deal| if let Deal::Cyclic(block) = deal { Some(*block) } else { None })
            .collect();
        match blocks {
            Some(blocks) => write!(f, "{extents}/{}", by_x(&blocks))?,
            None => {
                let deals: Vec<_> = self.deals().iter().map(Deal::to_string).collect();
                write!(f, "({}) on {extents}", deals.join(", "))?;
            }
        }
        if self.first().iter().any(|&first| first > 0) {
            write!(f, " first={}", by_x(self.first()))?;
        }
        if self.grid().order() == RankOrder::ColMajor {
            write!(f, " rank-order=col")?;
        }
        match self.grid().rank_range() {
            Some(range) if range.start == 0 => Ok(()),
            Some(range) => write!(f, " ranks={}..{}", range.start, range.end),
            None => write!(f, " ranks={}", by_comma(self.grid().ranks())),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.pattern(), by_x(&self.shape()))
    }
}

impl fmt::Display for Deal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => write!(f, "block"),
            Self::Cyclic(1) => write!(f, "cyclic"),
            Self::Cyclic(block) => write!(f, "cyclic({block})"),
            Self::GenBlock(sizes) => write!(f, "gen_block({})", by_comma(sizes.iter().copied())),
            Self::Cuts(pieces) => {
                let pieces: Vec<_> =
                    pieces.iter().map(|piece| format!("{}@{}", piece.len, piece.owner)).collect();
                write!(f, "cuts({})", pieces.join(","))
            }
            Self::Whole => write!(f, "*"),
        }
    }
}

fn by_comma(numbers: impl Iterator<Item = u64>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (pattern, in_memory) = pattern_alone(text)?;
        in_memory.refuse(text)?;
        Ok(pattern)
    }
}

/// Reads a pattern that may say how parts lie in memory, as in `4x4/64x64 memory=row`: for command lines.
pub fn parse_pattern(text: &str) -> Result<(Pattern, Option<MemoryOrder>)> {
    let (pattern, in_memory) = pattern_alone(text)?;
    match in_memory.strides {
        None => Ok((pattern, in_memory.order.map(|(_, order)| order))),
        Some((at, _)) => Err(Error::notation(
            at,
            Cursor::new(text).sentence(at, "strides= can be given only together with the shape of the array"),
        )),
    }
}

fn pattern_alone(text: &str) -> Result<(Pattern, InMemory)> {
    let mut cursor = Cursor::new(text);
    let read = cursor.pattern()?;
    if cursor.at_word("of") {
        return Err(cursor.expected("the end: the shape of the array is not part of the layout here"));
    }
    cursor.end("an option (first=, rank-order=, ranks=) or the end")?;
    Ok(read)
}

impl FromStr for Distribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (distribution, in_memory) = Cursor::new(text).distribution()?;
        in_memory.refuse(text)?;
        Ok(distribution)
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (distribution, in_memory) = Cursor::new(text).distribution()?;
        let order = in_memory.order.map_or_else(MemoryOrder::default, |(_, order)| order);
        let layout = Self::new(distribution, order);
        match in_memory.strides {
            None => Ok(layout),
            Some((at, strides)) => {
                layout.with_strides(&strides).map_err(|error| Cursor::new(text).blame(at, &error))
            }
        }
    }
}

impl fmt::Display for Layout {
    /// Strides that one rank has for itself are not printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.distribution())?;
        if self.order() == MemoryOrder::RowMajor {
            write!(f, " memory=row")?;
        }
        match self.common_strides() {
            Some(strides) => write!(f, " strides={}", by_x(strides)),
            None => Ok(()),
        }
    }
}

/// Reads a shape such as `8192x8192`, for command lines, which may also be written `8192,8192`, `8_192x8_192` or `8Kix8Ki`.
pub fn parse_shape(text: &str) -> Result<Vec<u64>> {
    let mut cursor = Cursor::new(text);
    let what = "a shape such as 240 or 8192x8192";
    let mut shape = vec![cursor.number(what, 0)?];
    let between: &[char] = if cursor.peek() == Some(',') { &[','] } else { &TIMES };
    while between.iter().any(|&sign| cursor.eat(sign)) {
        shape.push(cursor.number(what, 0)?);
    }
    cursor.end("\"x\" and a number, or the end")?;
    Ok(shape)
}

/// Writes a shape as the notation does: `8192x8192`.
pub fn print_shape(shape: &[u64]) -> String {
    by_x(shape)
}

/// Reads an index such as `100,37` or a permutation such as `2,0,1`.
pub fn parse_index(text: &str) -> Result<Vec<u64>> {
    let mut cursor = Cursor::new(text);
    let mut index = vec![cursor.number("an index such as 7 or 100,37", 0)?];
    while cursor.eat(',') {
        index.push(cursor.number("a number", 0)?);
    }
    cursor.end("\",\" and a number, or the end")?;
    Ok(index)
}

/// What stands between extents; the first is what we write.
const TIMES: [char; 4] = ['x', 'X', '*', '\u{d7}'];

/// What a number may end with, and how often it is 1024.
const UNITS: [(char, u32); 4] = [('k', 1), ('m', 2), ('g', 3), ('t', 4)];

/// Longer texts are not repeated whole in errors.
const SHOWN: usize = 120;

const FORM: &str = "a layout such as 16/3, 4x4/64x64 or (cyclic(64), block) on 4x4";

/// A value and its position in the text.
type Placed<T> = (usize, T);

/// A grid and a rule for each dimension, with the place of each rule.
struct Described {
    grid: Grid,
    deals: Vec<Placed<Deal>>,
}

/// The memory order and strides that a text gives, and their positions in it.
#[derive(Default)]
struct InMemory {
    order: Option<Placed<MemoryOrder>>,
    strides: Option<Placed<Vec<u64>>>,
}

impl InMemory {
    /// Fails if a text gives memory order or strides, for values without addresses.
    fn refuse(self, text: &str) -> Result<()> {
        let places =
            [self.order.map(|(at, _)| (at, "memory=")), self.strides.map(|(at, _)| (at, "strides="))];
        match places.into_iter().flatten().next() {
            None => Ok(()),
            Some((at, word)) => {
                let what = format!(
                    "{word} says how a part lies in memory, which does not matter here; leave it out"
                );
                Err(Error::notation(at, Cursor::new(text).sentence(at, &what)))
            }
        }
    }
}

/// A place in a text, with the few moves the grammar needs.
struct Cursor<'a> {
    text: &'a str,
    chars: Vec<char>,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        let mut cursor = Self { text, chars: text.chars().collect(), at: 0 };
        cursor.spaces();
        cursor
    }

    fn distribution(mut self) -> Result<(Distribution, InMemory)> {
        let (pattern, mut in_memory) = self.pattern()?;
        if !self.word("of") {
            return Err(self.expected("\"of\" and the shape of the array, as in \"4x4/64x64 of 8192x8192\""));
        }
        let at = self.at;
        let shape = self.extents("the shape of the array, such as 8192x8192", 0)?;
        while let Some(word) = ["memory", "strides"].into_iter().find(|word| self.is_option(word)) {
            self.in_memory(word, &mut in_memory)?;
        }
        self.end("memory=, strides= or the end")?;
        Ok((pattern.over(&shape).map_err(|error| self.blame(at, &error))?, in_memory))
    }

    /// Reads `memory=` or `strides=`, which begins here.
    fn in_memory(&mut self, word: &str, into: &mut InMemory) -> Result<()> {
        let at = self.at;
        let given = if word == "memory" { into.order.is_some() } else { into.strides.is_some() };
        if given {
            return Err(Error::notation(at, self.sentence(at, &format!("{word}= is given twice"))));
        }
        self.word(word);
        self.eat('=');
        if word == "strides" {
            into.strides = Some((at, self.extents("a stride for each dimension, such as 1x4096", 0)?));
        } else {
            let order = self.choice(MemoryOrder::RowMajor, MemoryOrder::ColMajor)?;
            into.order = Some((at, order));
        }
        Ok(())
    }

    fn pattern(&mut self) -> Result<(Pattern, InMemory)> {
        let Described { mut grid, deals } = match self.peek() {
            Some('(') => self.words()?,
            Some('0'..='9') => self.blocks()?,
            _ => return Err(self.expected(FORM)),
        };
        let dims = grid.dims();
        let mut first: Vec<Placed<u64>> = vec![(0, 0); dims];
        let mut seen = Vec::new();
        let mut in_memory = InMemory::default();
        while let Some((option, value_at)) = self.option() {
            let at = self.at;
            if ["memory", "strides"].contains(&option) {
                self.in_memory(option, &mut in_memory)?;
                continue;
            }
            if seen.contains(&option) {
                return Err(Error::notation(at, self.sentence(at, &format!("{option}= is given twice"))));
            }
            seen.push(option);
            self.at = value_at;
            grid = match option {
                "first" => {
                    first = self.placed_extents("the first process in each dimension, such as 1x0", 0)?;
                    if first.len() != dims {
                        let given = match first.len() {
                            1 => "1 first process was".to_string(),
                            many => format!("{many} first processes were"),
                        };
                        let wrong = format!("{given} given for {}", counted(dims, "dimension"));
                        return Err(Error::notation(
                            at,
                            self.sentence(at, &format!("{wrong}; give one for each")),
                        ));
                    }
                    Ok(grid)
                }
                "rank-order" => {
                    self.choice(RankOrder::RowMajor, RankOrder::ColMajor).map(|order| grid.with_order(order))
                }
                _ => self.ranks(grid),
            }
            .map_err(|error| self.blame(at, &error))?;
            self.spaces();
        }
        // Each dimension by itself, so that what does not fit is blamed on the words that say it.
        for (dim, ((deal_at, deal), (first_at, first))) in deals.iter().zip(&first).enumerate() {
            let procs = grid.extents()[dim];
            check_deal(deal, procs, 0).map_err(|error| self.blame(*deal_at, &error))?;
            check_deal(deal, procs, *first).map_err(|error| self.blame(*first_at, &error))?;
        }
        let without_places = |placed: Vec<Placed<u64>>| placed.into_iter().map(|(_, value)| value).collect();
        let deals = deals.into_iter().map(|(_, deal)| deal).collect();
        Ok((Pattern::new(grid, deals, without_places(first))?, in_memory))
    }

    /// `4x4/64x64`
    fn blocks(&mut self) -> Result<Described> {
        let begin = self.at;
        let extents = self.extents("a grid such as 4x4", 1)?;
        if !self.eat('/') {
            return Err(self.expected("\"/\" and the block sizes, as in 4x4/64x64"));
        }
        let at = self.at;
        let blocks = self.placed_extents("a block size for each grid dimension, as in 4x4/64x64", 1)?;
        let wrong = format!("one block size for each dimension of the grid, which has {}", extents.len());
        if blocks.len() < extents.len() {
            return Err(self.expected(&format!("\"x\" and another block size, {wrong}")));
        }
        if blocks.len() > extents.len() {
            let wrong = format!("{} block sizes were given; give {wrong}", blocks.len());
            return Err(Error::notation(at, self.sentence(at, &wrong)));
        }
        let grid = Grid::new(&extents).map_err(|error| self.blame(begin, &error))?;
        Ok(Described {
            grid,
            deals: blocks.into_iter().map(|(at, block)| (at, Deal::Cyclic(block))).collect(),
        })
    }

    /// `(cyclic(64), block) on 4x4`
    fn words(&mut self) -> Result<Described> {
        self.eat('(');
        let mut deals = vec![(self.at, self.deal()?)];
        while self.eat(',') {
            deals.push((self.at, self.deal()?));
        }
        if !self.eat(')') {
            return Err(self.expected("\",\" and another dimension, or \")\""));
        }
        if !self.word("on") {
            return Err(self.expected("\"on\" and a grid, as in (cyclic(64), block) on 4x4"));
        }
        let at = self.at;
        let mut extents = self.extents("a grid such as 4x4", 1)?;
        let dealt = deals.iter().filter(|(_, deal)| *deal != Deal::Whole).count();
        if extents.len() != deals.len() {
            // Without a dealt dimension there is nothing that processes could be left out for: `(*, *) on 1` alone.
            if extents.len() != dealt.max(1) || (dealt == 0 && extents[0] > 1) {
                let wrong = format!(
                    "{} described, but the grid has {}; give one grid extent for each (1 where it says *)",
                    if deals.len() == 1 {
                        "1 dimension is".to_string()
                    } else {
                        format!("{} dimensions are", deals.len())
                    },
                    extents.len()
                );
                return Err(Error::notation(at, self.sentence(at, &wrong)));
            }
            let mut given = extents.into_iter();
            extents = deals
                .iter()
                .map(|(_, deal)| if *deal == Deal::Whole { 1 } else { given.next().unwrap_or(1) })
                .collect();
        }
        let grid = Grid::new(&extents).map_err(|error| self.blame(at, &error))?;
        Ok(Described { grid, deals })
    }

    fn deal(&mut self) -> Result<Deal> {
        if self.eat('*') {
            return Ok(Deal::Whole);
        }
        if self.word("block") {
            return Ok(Deal::Block);
        }
        if self.word("cyclic") {
            let block = if self.eat('(') {
                let block = self.number("a block size, as in cyclic(64)", 1)?;
                self.close("cyclic")?;
                block
            } else {
                1
            };
            return Ok(Deal::Cyclic(block));
        }
        if self.word("gen_block") {
            self.open("a size for each process, as in gen_block(10,20,30)")?;
            let mut sizes = vec![self.number("a size", 0)?];
            while self.eat(',') {
                sizes.push(self.number("a size", 0)?);
            }
            self.close("gen_block")?;
            return Ok(Deal::GenBlock(sizes));
        }
        if self.word("cuts") {
            self.open("pieces as size@process, as in cuts(10@2,25@0)")?;
            let mut pieces = vec![self.piece()?];
            while self.eat(',') {
                pieces.push(self.piece()?);
            }
            self.close("cuts")?;
            return Ok(Deal::Cuts(pieces));
        }
        Err(self.expected("block, cyclic, cyclic(64), gen_block(10,20), cuts(10@1,20@0) or *"))
    }

    fn piece(&mut self) -> Result<Piece> {
        let len = self.number("the size of a piece, as in 10@2", 0)?;
        if !self.eat('@') {
            return Err(self.expected("\"@\" and the process that owns the piece, as in 10@2"));
        }
        Ok(Piece { len, owner: self.number("the process that owns the piece", 0)? })
    }

    /// The option that begins here and where its value does, without moving.
    fn option(&self) -> Option<(&'static str, usize)> {
        let mut ahead = Self { text: self.text, chars: self.chars.clone(), at: self.at };
        let names = ["first", "rank-order", "order", "ranks", "memory", "strides"];
        let name = names.into_iter().find(|name| ahead.word(name))?;
        // The older name of `rank-order=`.
        let name = if name == "order" { "rank-order" } else { name };
        ahead.eat('=').then_some((name, ahead.at))
    }

    /// True if an option with this name begins here.
    fn is_option(&self, name: &str) -> bool {
        self.option().is_some_and(|(option, _)| option == name)
    }

    /// Reads `row` or `col`.
    fn choice<T>(&mut self, row: T, col: T) -> Result<T> {
        if self.word("row") {
            Ok(row)
        } else if self.word("col") {
            Ok(col)
        } else {
            Err(self.expected("row or col"))
        }
    }

    fn ranks(&mut self, grid: Grid) -> Result<Grid> {
        let first = self.number("ranks as in 0..16 or 3,1,2,0", 0)?;
        if self.eat('.') {
            if !self.eat('.') {
                return Err(self.expected("a second \".\", as in 0..16"));
            }
            let end = self.number("the end of the ranks, as in 0..16", 0)?;
            if end.checked_sub(first) != Some(grid.size()) {
                return Err(Error::mismatch(format!(
                    "ranks={first}..{end} was given for a grid of {} processes; the first rank is included and the end \
                     is not, so they must be that far apart",
                    grid.size()
                )));
            }
            return grid.with_first_rank(first);
        }
        let mut ranks = vec![first];
        while self.eat(',') {
            ranks.push(self.number("a rank", 0)?);
        }
        grid.with_ranks(&ranks)
    }

    fn extents(&mut self, what: &str, least: u64) -> Result<Vec<u64>> {
        Ok(self.placed_extents(what, least)?.into_iter().map(|(_, extent)| extent).collect())
    }

    fn placed_extents(&mut self, what: &str, least: u64) -> Result<Vec<Placed<u64>>> {
        let mut extents = vec![(self.at, self.number(what, least)?)];
        while TIMES.iter().any(|&sign| self.eat(sign)) {
            extents.push((self.at, self.number(what, least)?));
        }
        Ok(extents)
    }

    fn number(&mut self, what: &str, least: u64) -> Result<u64> {
        let begin = self.at;
        let mut number = Some(0_u64);
        let digit_at = |at: usize| self.chars.get(at).and_then(|c| c.to_digit(10));
        let mut at = begin;
        while let Some(digit) = digit_at(at) {
            number = number.and_then(|n| n.checked_mul(10)?.checked_add(u64::from(digit)));
            // An underscore between two digits is for the eye only.
            let gap = self.chars.get(at + 1) == Some(&'_') && digit_at(at + 2).is_some();
            at += if gap { 2 } else { 1 };
        }
        if at == begin {
            return Err(self.expected(what));
        }
        let unit = self.chars.get(at).map(char::to_ascii_lowercase);
        if let Some((_, powers)) = UNITS.iter().find(|(letter, _)| Some(*letter) == unit)
            && self.chars.get(at + 1) == Some(&'i')
        {
            number = number.and_then(|n| n.checked_mul(1024_u64.pow(*powers)));
            at += 2;
        }
        self.at = at;
        match number {
            None => Err(Error::notation(begin, self.sentence(begin, "the number does not fit in 64 bits"))),
            Some(n) if n < least => Err(Error::notation(
                begin,
                self.sentence(begin, &format!("{n} was given; at least {least} is needed")),
            )),
            Some(n) => {
                self.spaces();
                Ok(n)
            }
        }
    }

    fn open(&mut self, what: &str) -> Result<()> {
        if self.eat('(') { Ok(()) } else { Err(self.expected(&format!("\"(\" and {what}"))) }
    }

    fn close(&mut self, of: &str) -> Result<()> {
        if self.eat(')') { Ok(()) } else { Err(self.expected(&format!("\")\" after the numbers of {of}"))) }
    }

    fn end(&self, what: &str) -> Result<()> {
        if self.at == self.chars.len() { Ok(()) } else { Err(self.expected(what)) }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn spaces(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += 1;
            self.spaces();
        }
        found
    }

    /// Eats a whole word, in either case.
    fn word(&mut self, wanted: &str) -> bool {
        let found = self.at_word(wanted);
        if found {
            self.at += wanted.len();
            self.spaces();
        }
        found
    }

    /// True if a whole word, in either case, stands here.
    fn at_word(&self, wanted: &str) -> bool {
        let rest = &self.chars[self.at..];
        let of_word =
            |c: &&char| c.is_ascii_alphabetic() || **c == '_' || (**c == '-' && wanted.contains('-'));
        let letters = rest.iter().take_while(of_word).count();
        letters == wanted.len() && rest.iter().zip(wanted.chars()).all(|(a, b)| a.eq_ignore_ascii_case(&b))
    }

    /// "in TEXT at character N ('c'): ...", counting characters from 1 as people do. Of a long text only the part
    /// around the place is shown.
    fn sentence(&self, at: usize, what: &str) -> String {
        let (from, upto) = (at.saturating_sub(SHOWN / 2), (at + SHOWN / 2).min(self.chars.len()));
        let shown = if self.chars.len() <= SHOWN {
            format!("{:?}", self.text)
        } else {
            format!("{:?} (a part of it)", self.chars[from..upto].iter().collect::<String>())
        };
        match self.chars.get(at) {
            Some(c) => format!("in {shown} at character {} ({c:?}): {what}", at + 1),
            None => format!("in {shown} at its end: {what}"),
        }
    }

    fn expected(&self, what: &str) -> Error {
        Error::notation(self.at, self.sentence(self.at, &format!("expected {what}")))
    }

    /// Adds the place to an error about what was said there, unless it has one.
    fn blame(&self, at: usize, error: &Error) -> Error {
        if error.position().is_some() {
            return error.clone();
        }
        error.clone().placed(at, self.sentence(at, &error.to_string()))
    }
}
