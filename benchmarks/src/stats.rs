//! What is said of the timings of many cases.

use serde::Serialize;

/// What is said of some values; percentiles go from good to bad.
#[derive(Serialize)]
pub struct Stats {
    pub cases: usize,
    pub geometric_mean: f64,
    pub median: f64,
    pub percentile_95: f64,
    pub percentile_99: f64,
    pub worst: f64,
}

/// `None` of no values.
pub fn stats(mut values: Vec<f64>, more_is_better: bool) -> Option<Stats> {
    values.sort_by(f64::total_cmp);
    if more_is_better {
        values.reverse();
    }
    let at = |part: f64| values.get(((values.len() as f64 * part) as usize).min(values.len() - 1)).copied();
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    let worst = *values.last()?;
    Some(Stats {
        cases: values.len(),
        geometric_mean: (logs / values.len() as f64).exp(),
        median: at(0.5)?,
        percentile_95: at(0.95)?,
        percentile_99: at(0.99)?,
        worst,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_go_from_good_to_bad() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let ratio = stats(values.clone(), false).unwrap();
        assert_eq!(
            (ratio.median, ratio.percentile_95, ratio.percentile_99, ratio.worst),
            (51.0, 96.0, 100.0, 100.0)
        );
        let gain = stats(values, true).unwrap();
        assert_eq!((gain.percentile_95, gain.worst), (5.0, 1.0));
        assert!((stats(vec![2.0, 8.0], false).unwrap().geometric_mean - 4.0).abs() < 1e-12);
        assert!(stats(Vec::new(), false).is_none());
    }
}
