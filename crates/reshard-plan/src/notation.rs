//! The one-line notation of layouts: what people type, and what every value prints.
//!
//! ```text
//! pattern      = ( blocks | words ) { option }
//! blocks       = extents "/" extents                          4x4/64x64    16/3
//! words        = "(" deal { "," deal } ")" "on" extents       (cyclic(64), block) on 4x4
//! deal         = "block" | "cyclic" [ "(" number ")" ] | "gen_block" "(" number { "," number } ")"
//!              | "cuts" "(" number "@" process { "," ... } ")" | "*"
//! option       = "first=" extents                             process of the first block   first=1x0
//!              | "order=" ( "row" | "col" )                   how ranks number the grid    order=col
//!              | "ranks=" ( number ".." number | number { "," number } )                   ranks=8..24
//! distribution = pattern "of" extents                         4x4/64x64 of 8192x8192
//! extents      = number { "x" number }
//! ```
//!
//! Words may be upper case. Spaces may stand between any two parts. In `on`, dimensions dealt with `*` may be
//! left out as in HPF: `(block, *) on 3` is `(block, *) on 3x1`. Equal values print alike, and what is printed
//! parses back to an equal value. Errors name the character and say what would be right there.

use crate::axis::{Deal, Piece};
use crate::distribution::{Distribution, Pattern, check_deal};
use crate::error::{Error, Result};
use crate::grid::{Grid, Order, by_x};
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
        if self.grid().order() == Order::ColMajor {
            write!(f, " order=col")?;
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
        let mut cursor = Cursor::new(text);
        let pattern = cursor.pattern()?;
        if cursor.at_word("of") {
            return Err(cursor.expected("the end: a layout alone, the shape of the array is given apart"));
        }
        cursor.end("an option (first=, order=, ranks=) or the end")?;
        Ok(pattern)
    }
}

impl FromStr for Distribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut cursor = Cursor::new(text);
        let pattern = cursor.pattern()?;
        if !cursor.word("of") {
            return Err(
                cursor.expected("\"of\" and the shape of the array, as in \"4x4/64x64 of 8192x8192\"")
            );
        }
        let at = cursor.at;
        let shape = cursor.extents("the shape of the array, such as 8192x8192", 0)?;
        cursor.end("the end")?;
        pattern.over(&shape).map_err(|error| cursor.blame(at, &error))
    }
}

/// Reads a shape such as `8192x8192`: the same words as in the notation, for command lines.
pub fn parse_shape(text: &str) -> Result<Vec<u64>> {
    let mut cursor = Cursor::new(text);
    let shape = cursor.extents("a shape such as 240 or 8192x8192", 0)?;
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

/// Longer texts are not repeated whole in errors.
const SHOWN: usize = 120;

const FORM: &str = "a layout such as 16/3, 4x4/64x64 or (cyclic(64), block) on 4x4";

/// Something and where in the text it was said.
type Placed<T> = (usize, T);

/// A grid and a rule for each dimension, with the place of each rule.
struct Described {
    grid: Grid,
    deals: Vec<Placed<Deal>>,
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

    fn pattern(&mut self) -> Result<Pattern> {
        let Described { mut grid, deals } = match self.peek() {
            Some('(') => self.words()?,
            Some('0'..='9') => self.blocks()?,
            _ => return Err(self.expected(FORM)),
        };
        let dims = grid.dims();
        let mut first: Vec<Placed<u64>> = vec![(0, 0); dims];
        let mut seen = Vec::new();
        while let Some((option, value_at)) = self.option() {
            let at = self.at;
            if seen.contains(&option) {
                return Err(Error::notation(at, self.sentence(at, &format!("{option}= is given twice"))));
            }
            seen.push(option);
            self.at = value_at;
            grid = match option {
                "first" => {
                    first = self.placed_extents("the first process in each dimension, such as 1x0", 0)?;
                    if first.len() != dims {
                        let wrong =
                            format!("{} first processes were given for {dims} dimensions", first.len());
                        return Err(Error::notation(
                            at,
                            self.sentence(at, &format!("{wrong}; give one for each")),
                        ));
                    }
                    Ok(grid)
                }
                "order" => self.order().map(|order| grid.with_order(order)),
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
        Pattern::new(grid, deals, without_places(first))
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
        let wrong = format!("one block size for each of the {} grid dimensions", extents.len());
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
            if extents.len() != dealt.max(1) {
                let wrong = format!(
                    "{} dimensions are described, but the grid has {}; give one grid extent for each (1 where it says *)",
                    deals.len(),
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
        let name = ["first", "order", "ranks"].into_iter().find(|name| ahead.word(name))?;
        ahead.eat('=').then_some((name, ahead.at))
    }

    fn order(&mut self) -> Result<Order> {
        if self.word("row") {
            Ok(Order::RowMajor)
        } else if self.word("col") {
            Ok(Order::ColMajor)
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
        while self.eat('x') || self.eat('X') {
            extents.push((self.at, self.number(what, least)?));
        }
        Ok(extents)
    }

    fn number(&mut self, what: &str, least: u64) -> Result<u64> {
        let begin = self.at;
        let mut number = Some(0_u64);
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            number = number.and_then(|n| n.checked_mul(10)?.checked_add(u64::from(digit)));
            self.at += 1;
        }
        if self.at == begin {
            return Err(self.expected(what));
        }
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
        let letters = rest.iter().take_while(|c| c.is_ascii_alphabetic() || **c == '_').count();
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
