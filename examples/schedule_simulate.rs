//! The steps of a redistribution, and how long they take on a machine: the first example of Desprez et al.

use reshard::Result;
use reshard::cost::CostModel;
use reshard::problem::Problem;
use reshard::schedule::{Schedule, Strategy};
use reshard::simulate::{Machine, Network, simulate};

fn main() -> Result<()> {
    let problem = Problem::new("16/3 of 240".parse()?, "16/5 of 240".parse()?)?;
    let machine = Machine { cost: CostModel::new(2e-6, 8e-10)?, network: Network::Flat };
    for strategy in [Strategy::Optimal, Strategy::Caterpillar] {
        let schedule = Schedule::new(&problem, strategy)?;
        let seconds = simulate(&schedule, &machine, true)?.makespan();
        assert_eq!(schedule.optimal_steps(), Some(strategy == Strategy::Optimal));
        println!("{strategy}: {} steps, {:.1} us", schedule.num_steps(), seconds * 1e6);
    }
    Ok(())
}
