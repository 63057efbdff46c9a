//! A reduced Gaussian grid, as weather models have it: rows of latitude that have fewer points towards the poles, all in one array of one
//! dimension. Each rank of the model has a band of rows in the north and the one opposite in the south, which no regular layout says: the
//! layout is a list of `cuts`. Another job gets the array in blocks, step after step, and verifies every element.

use reshard::overlap::Method;
use reshard::problem::Problem;
use reshard::{Layout, Result};
use reshard_couple::{ElementType, Job, Meeting, Options, Publisher, Subscriber};

/// Rows from a pole to the equator.
const ROWS: u64 = 80;
const RANKS: u64 = 5;
const STEPS: u64 = 10;

fn main() -> Result<()> {
    let points: Vec<u64> = (0..2 * ROWS).map(points_of_row).collect();
    let all: u64 = points.iter().sum();
    let model = bands(&points)?;
    for blocks in [format!("(block) on 3 of {all}"), format!("7/100 of {all}")] {
        let viewer: Layout = blocks.parse()?;
        println!("{all} points in {} rows, from {RANKS} ranks with two bands each to {blocks}", points.len());
        report(&model, &viewer)?;
        couple(&model, &viewer, &points)?;
    }
    Ok(())
}

/// The octahedral grid: 20 points next to a pole, and 4 more in each row until the equator.
fn points_of_row(row: u64) -> u64 {
    20 + 4 * row.min(2 * ROWS - 1 - row)
}

/// Bands of whole rows, so that each rank has nearly as many points: rank 0 the northernmost and the southernmost.
fn bands(points: &[u64]) -> Result<Layout> {
    let north = &points[..ROWS as usize];
    let half: u64 = north.iter().sum();
    let mut bands = vec![0; RANKS as usize];
    let mut before = 0;
    for &row in north {
        // The band in which the middle of the row lies.
        bands[((before + row / 2) * RANKS / half) as usize] += row;
        before += row;
    }
    let cuts: Vec<String> =
        bands.iter().enumerate().map(|(rank, points)| format!("{points}@{rank}")).collect();
    let south: Vec<String> = cuts.iter().rev().cloned().collect();
    format!("(cuts({},{})) on {RANKS} of {}", cuts.join(","), south.join(","), 2 * half).parse()
}

/// What each rank has to do in a step; it finds out alone, whatever the size of the grid.
fn report(model: &Layout, viewer: &Layout) -> Result<()> {
    let problem = Problem::new(model.distribution().clone(), viewer.distribution().clone())?;
    for rank in 0..RANKS {
        let sends = problem.sends(rank, Method::default())?;
        let messages = sends.shares(viewer.distribution().grid())?.len();
        println!("  rank {rank} of the model sends {} points, messages: {messages}", sends.elems());
    }
    for rank in viewer.distribution().grid().ranks() {
        let receives = problem.receives(rank, Method::default())?;
        let messages = receives.shares(model.distribution().grid())?.len();
        println!("  rank {rank} of the viewer gets {} points, messages: {messages}", receives.elems());
    }
    Ok(())
}

/// Two jobs, here two threads; each hosts all its ranks.
fn couple(model: &Layout, viewer: &Layout, points: &[u64]) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("reshard-gaussian-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is room for a file");
    let meeting = Meeting::file(folder.join("run.meet"));
    let there = meeting.clone();
    let (layout, rows) = (viewer.clone(), points.to_vec());
    let consumer = std::thread::spawn(move || consume(&layout, &rows, &there));

    let mut publisher = Publisher::new(Job::hosting_all(), Options::default());
    let wind = publisher.publish("wind", model, ElementType::of::<f64>())?;
    publisher.open(&meeting)?;
    publisher.wait_for(1)?;
    // The row and the place in it of each point, in the order of the array.
    let places: Vec<(u64, u64)> =
        (0..).zip(points).flat_map(|(row, &count)| (0..count).map(move |point| (row, point))).collect();
    for step in 0..STEPS {
        let parts = model.parts(|index| {
            let (row, point) = places[index[0] as usize];
            value(step, row, point)
        })?;
        publisher.put(wind, step, b"", &parts)?;
    }
    publisher.finish()?;
    let steps = consumer.join().expect("the consumer does not panic")?;
    assert_eq!(steps, STEPS);
    println!("  {STEPS} steps, every element verified");
    std::fs::remove_dir_all(&folder).expect("it is ours");
    Ok(())
}

fn consume(layout: &Layout, points: &[u64], meeting: &Meeting) -> Result<u64> {
    let mut subscriber = Subscriber::new(Job::hosting_all(), Options::default());
    let wind = subscriber.subscribe("wind", layout, ElementType::of::<f64>())?;
    subscriber.connect(meeting)?;
    let (mut parts, mut steps) = (layout.parts(|_| 0.0)?, 0);
    while let Some(step) = subscriber.get(wind, &mut parts)? {
        // Row by row, point by point, wherever the layout has them.
        let mut index = 0;
        for (row, &count) in (0..).zip(points) {
            for point in 0..count {
                assert_eq!(
                    *layout.get(&parts, &[index])?,
                    value(step.number, row, point),
                    "row {row}, point {point}"
                );
                index += 1;
            }
        }
        steps += 1;
    }
    subscriber.leave();
    Ok(steps)
}

/// A value that no other point and no other step has.
fn value(step: u64, row: u64, point: u64) -> f64 {
    (step * 1_000_000_000 + row * 1_000_000 + point) as f64
}
