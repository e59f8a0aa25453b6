// Usage: bench_regorus FOLDER QUERY SECONDS. FOLDER holds rules.rego, path.rego, data.json and input.json.
// Prints {"value": .., "ns": median of one evaluation}.
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let read = |name: &str| std::fs::read_to_string(format!("{}/{}", words[1], name));
    let mut engine = regorus::Engine::new();
    for name in ["path.rego", "rules.rego"] {
        engine.add_policy(name.to_string(), read(name)?)?;
    }
    engine.add_data(regorus::Value::from_json_str(&read("data.json")?)?)?;
    let input = regorus::Value::from_json_str(&read("input.json")?)?;
    let limit = Duration::from_secs_f64(words[3].parse()?);
    let begin = Instant::now();
    let mut times = Vec::new();
    let mut value = regorus::Value::Undefined;
    while begin.elapsed() < limit || times.is_empty() {
        engine.set_input(input.clone());
        let before = Instant::now();
        value = engine.eval_rule(words[2].clone())?;
        times.push(before.elapsed().as_nanos());
    }
    times.sort();
    println!("{{\"value\": {}, \"ns\": {}}}", value, times[times.len() / 2]);
    Ok(())
}
