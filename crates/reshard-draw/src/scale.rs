//! Numbers as people read them: shortened counts, times with units, round ticks.

/// A count in at most five characters: `9999`, `12.3k`, `291k`, `1.05M`.
pub fn shortened(count: u128) -> String {
    if count < 10_000 {
        return count.to_string();
    }
    let mut value = count as f64;
    for unit in ["k", "M", "G", "T", "P", "E", "Z", "Y"] {
        value /= 1000.0;
        // What is rounded to 1000 has the next unit.
        if value < 999.5 {
            let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
            return format!("{value:.decimals$}{unit}");
        }
    }
    format!("{count:e}")
}

/// Seconds in the unit that fits, with four digits.
pub fn time(seconds: f64) -> String {
    if seconds <= 0.0 {
        return "0 s".to_string();
    }
    let (unit, name) = unit_of(seconds);
    let value = seconds / unit;
    let decimals = if value < 10.0 { 3 } else { 1 + usize::from(value < 100.0) };
    format!("{value:.decimals$} {name}")
}

fn unit_of(seconds: f64) -> (f64, &'static str) {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")];
    units.into_iter().find(|(unit, _)| seconds >= *unit).unwrap_or((1e-9, "ns"))
}

/// The largest round step (1, 2 or 5 times a power of ten) with at least `least` steps up to `most`.
pub fn round_step(most: f64, least: f64) -> f64 {
    if most <= 0.0 || most.is_nan() || most.is_infinite() {
        return 1.0;
    }
    let rough = most / least;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [5.0, 2.0, 1.0].into_iter().find(|step| step * power <= rough * (1.0 + 1e-12));
    step.unwrap_or(1.0) * power
}

/// Round points on an axis from 0 to `most` with their labels, of which all have one unit: `0`, `5`, `10 us`.
pub fn time_ticks(most: f64) -> Vec<(f64, String)> {
    let step = round_step(most, 4.0);
    let (unit, name) = unit_of(most);
    // Decimals that the step has in this unit.
    let decimals = (-(step / unit).log10().floor()).max(0.0) as usize;
    let count = (most / step * (1.0 + 1e-12)).floor() as u64;
    let label = |number: u64| match number {
        0 => "0".to_string(),
        _ => format!("{:.decimals$} {name}", number as f64 * step / unit),
    };
    (0..=count).map(|number| (number as f64 * step, label(number))).collect()
}

/// Round whole numbers from 0 to `most`, at least `least` of them where there are as many.
pub fn count_ticks(most: u64, least: f64) -> Vec<u64> {
    let step = round_step(most as f64, least).max(1.0).round() as u64;
    (0..=most / step).map(|number| number * step).collect()
}

/// A stride of labels: the least of 1, 2, 5, 10, 20, ... at which they have room.
pub fn stride(room_of_one: f64, needed: f64) -> usize {
    let mut stride = 1;
    let mut factors = [2, 5, 10].into_iter().cycle();
    let mut decade = 1;
    while stride as f64 * room_of_one < needed && stride < 1_000_000 {
        let factor = factors.next().unwrap_or(10);
        stride = decade * factor;
        if factor == 10 {
            decade *= 10;
        }
    }
    stride
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_at_most_five_characters() {
        let cases: [(u128, &str); 9] = [
            (0, "0"),
            (9_999, "9999"),
            (10_000, "10.0k"),
            (290_816, "291k"),
            (99_960, "100k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
            (1_048_576, "1.05M"),
            (1 << 62, "4.61E"),
        ];
        for (count, text) in cases {
            assert_eq!(shortened(count), text);
        }
        assert!((0..60).all(|power| shortened(1 << power).len() <= 5));
    }

    #[test]
    fn ticks_are_round() {
        let labels = |most: f64| time_ticks(most).into_iter().map(|tick| tick.1).collect::<Vec<_>>();
        assert_eq!(labels(14.01e-6), ["0", "2 us", "4 us", "6 us", "8 us", "10 us", "12 us", "14 us"]);
        assert_eq!(labels(1.0), ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s"]);
        assert_eq!(labels(3.0e-9), ["0", "0.5 ns", "1.0 ns", "1.5 ns", "2.0 ns", "2.5 ns", "3.0 ns"]);
        assert_eq!(count_ticks(256, 4.0), [0, 50, 100, 150, 200, 250]);
        assert_eq!(count_ticks(3, 4.0), [0, 1, 2, 3]);
        assert_eq!(count_ticks(0, 4.0), [0]);
    }

    #[test]
    fn labels_have_room_at_their_stride() {
        assert_eq!(
            [1.0, 9.0, 11.0, 21.0, 51.0, 101.0].map(|needed| stride(10.0, needed)),
            [1, 1, 2, 5, 10, 20]
        );
    }
}
