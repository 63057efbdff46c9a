//! Which colour a thing has: eight that can be told apart, also by the colour-blind; from the ninth thing on they are hatched.

/// Colours of Okabe and Ito, with a grey in the place of black; neighbours in this order differ most.
pub const COLOURS: [&str; 8] =
    ["#56b4e9", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#d55e00", "#0072b2", "#bbbbbb"];

/// Kinds of hatching; the first is none.
pub const HATCHES: usize = 8;

/// The ink of text, lines and hatching.
pub const INK: &str = "#111111";
/// What is said besides.
pub const FAINT_INK: &str = "#595959";
/// Time in which nothing happens.
pub const IDLE: &str = "#eeeeee";
pub const PAPER: &str = "#ffffff";

/// How a thing is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    pub colour: usize,
    pub hatch: usize,
}

impl Fill {
    /// The fill of thing number `index`: after 64 they come again.
    pub fn of(index: u64) -> Self {
        let count = COLOURS.len() as u64;
        Self { colour: (index % count) as usize, hatch: (index / count % HATCHES as u64) as usize }
    }

    pub fn base(self) -> &'static str {
        COLOURS[self.colour]
    }
}

/// Black or white, whichever is easier to read on a colour `#rrggbb`.
pub fn ink_on(colour: &str) -> &'static str {
    if contrast(colour, INK) >= contrast(colour, PAPER) { INK } else { PAPER }
}

/// The contrast of two colours `#rrggbb`, from 1 to 21, as the Web Content Accessibility Guidelines define it; text needs 4.5.
pub fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

fn luminance(colour: &str) -> f64 {
    let [red, green, blue] = linear(colour);
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

/// The intensities of a colour, from 0 to 1.
fn linear(colour: &str) -> [f64; 3] {
    let channel = |at: usize| {
        let byte = colour.get(1 + 2 * at..3 + 2 * at).and_then(|text| u8::from_str_radix(text, 16).ok());
        let value = f64::from(byte.unwrap_or(0)) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    [0, 1, 2].map(channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Matrix = [[f64; 3]; 3];

    const NORMAL: Matrix = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    /// Dichromats as Viénot, Brettel and Mollon (1999) model them, on linear intensities.
    const PROTAN: Matrix = [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]];
    const DEUTAN: Matrix = [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]];

    /// CIE L*a*b* of a colour as somebody sees it.
    fn seen(colour: &str, by: &Matrix) -> [f64; 3] {
        let rgb = linear(colour);
        let rgb = by.map(|row| row.iter().zip(rgb).map(|(a, b)| a * b).sum::<f64>());
        let xyz = [
            (0.4124 * rgb[0] + 0.3576 * rgb[1] + 0.1805 * rgb[2]) / 0.9505,
            0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2],
            (0.0193 * rgb[0] + 0.1192 * rgb[1] + 0.9505 * rgb[2]) / 1.089,
        ];
        let [x, y, z] = xyz.map(|v| if v > 0.008856 { v.cbrt() } else { 7.787 * v + 16.0 / 116.0 });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn colours_can_be_told_apart_by_the_colour_blind_too() {
        for by in [NORMAL, PROTAN, DEUTAN] {
            for (at, one) in COLOURS.iter().enumerate() {
                for other in &COLOURS[..at] {
                    let (a, b) = (seen(one, &by), seen(other, &by));
                    let apart = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                    // A difference of 2.3 is just noticed.
                    assert!(apart > 9.0, "{one} and {other}: {apart}");
                }
            }
        }
    }

    #[test]
    fn text_can_be_read_on_every_colour() {
        for colour in COLOURS {
            assert!(contrast(colour, ink_on(colour)) >= 4.5, "{colour}");
        }
        for ink in [INK, FAINT_INK] {
            assert!(contrast(ink, PAPER) >= 4.5 && contrast(ink, IDLE) >= 4.5, "{ink}");
        }
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
    }

    #[test]
    fn sixty_four_things_have_fills_of_their_own() {
        let fills: Vec<Fill> = (0..64).map(Fill::of).collect();
        assert!(fills.iter().enumerate().all(|(at, fill)| !fills[..at].contains(fill)));
        assert_eq!(Fill::of(64), Fill::of(0));
    }
}
