//! Pictures: temperatures by colour, a scale beside them, and below which rank of the producer had which columns.

use reshard::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Colours of temperatures, from 0 to 1 at equal distances.
const HEAT: [[u8; 3]; 8] = [
    [8, 16, 60],
    [22, 62, 150],
    [72, 148, 212],
    [206, 230, 242],
    [255, 238, 150],
    [250, 160, 52],
    [208, 40, 32],
    [104, 0, 24],
];

/// Colours of ranks.
const RANKS: [[u8; 3]; 8] = [
    [68, 119, 170],
    [238, 136, 102],
    [34, 136, 51],
    [204, 187, 68],
    [102, 204, 238],
    [170, 51, 119],
    [150, 150, 150],
    [80, 60, 40],
];

/// The number of shades between the first and the last colour of `HEAT`.
const SHADES: usize = 240;

/// The place of the background among the colours: after all shades and ranks.
const WHITE: usize = SHADES + RANKS.len();

/// Cells are drawn as squares, so large that a plate has about this many pixels along a side.
const SIDE: usize = 512;

/// Pixels of the scale and of the ranks' bar, and between them and the plate.
const BAR: usize = 16;
const GAP: usize = 6;

/// Writes a picture of `size` x `size` temperatures, row after row; the ranks of the producer have so many columns each.
pub fn write(path: &Path, size: usize, temperatures: &[f64], columns: &[u64]) -> Result<()> {
    let scale = (SIDE / size).max(1);
    let side = size * scale;
    let total = side + GAP + BAR;
    let owners: Vec<usize> = columns
        .iter()
        .enumerate()
        .flat_map(|(rank, &count)| vec![rank % RANKS.len(); count as usize])
        .collect();
    let pixel = |y: usize, x: usize| match (y < side, x < side) {
        (true, true) => shade(temperatures[y / scale * size + x / scale]),
        (true, false) if x >= side + GAP => (side - 1 - y) * (SHADES - 1) / (side - 1),
        (false, true) if y >= side + GAP => SHADES + owners[x / scale],
        _ => WHITE,
    };
    let pixels: Vec<u8> = (0..total * total).map(|at| pixel(at / total, at % total) as u8).collect();
    let failed = |error: String| {
        Error::new(ErrorKind::External, format!("the picture {} cannot be written: {error}", path.display()))
    };
    let file = File::create(path).map_err(|error| failed(error.to_string()))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), total as u32, total as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette());
    let mut writer = encoder.write_header().map_err(|error| failed(error.to_string()))?;
    writer.write_image_data(&pixels).and_then(|()| writer.finish()).map_err(|error| failed(error.to_string()))
}

/// The shade of a temperature, by its square root: what is only a little warm shows.
fn shade(temperature: f64) -> usize {
    (temperature.clamp(0.0, 1.0).sqrt() * (SHADES - 1) as f64).round() as usize
}

/// All colours: shades, ranks, background.
fn palette() -> Vec<u8> {
    let shade = |shade: usize| {
        let at = shade as f64 / (SHADES - 1) as f64 * (HEAT.len() - 1) as f64;
        let below = (at as usize).min(HEAT.len() - 2);
        let mix =
            |(low, high): (u8, u8)| f64::from(low) + (at - below as f64) * (f64::from(high) - f64::from(low));
        [0, 1, 2].map(|part| mix((HEAT[below][part], HEAT[below + 1][part])).round() as u8)
    };
    (0..SHADES).map(shade).chain(RANKS).chain([[255; 3]]).flatten().collect()
}
