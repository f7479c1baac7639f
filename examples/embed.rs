//! Delivers a view from memory into a Delta table: `cargo run --example embed -- target/embedded`.

use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cutover::{
    Access, Changes, Durability, Location, Sink, SinkSettings, Snapshot, Standing, Step, StepRange, Target, View, World,
};

#[tokio::main]
async fn main() -> cutover::Result<()> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "target/embedded".into());
    let schema =
        Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("price", DataType::Float64, true)]);
    let view = View::new("prices", &schema, vec!["id".into()])?;
    let rows = |columns: Vec<Arc<dyn arrow::array::Array>>, schema| {
        RecordBatch::try_new(schema, columns).expect("columns that fit")
    };

    let location = Location::open(&uri, Access::Write(Durability::Commit))?;
    let settings = SinkSettings::new("shop/prices/lake", "shop-database-1");
    let target = Target::open(location, view.clone(), settings, World::system()).await?;
    let mut sink: Sink = match target.standing() {
        Standing::Ours(_) => target.claim().await?,
        _ => {
            let ids = Arc::new(Int64Array::from(vec![1, 2, 3]));
            let prices = Arc::new(Float64Array::from(vec![9.5, 3.0, 12.25]));
            let state = rows(vec![ids, prices], Arc::clone(view.schema()));
            target.load(Snapshot::from_batches(Step::new(100)?, vec![state])).await?
        }
    };
    let from = sink.last_step()?;
    let range = StepRange::new(from, Step::new(from.get() + 1)?)?;
    let (steps, ops) = (Int64Array::from(vec![range.to().as_i64(); 2]), StringArray::from(vec!["u", "d"]));
    let (ids, prices) = (Int64Array::from(vec![1, 2]), Float64Array::from(vec![Some(8.75), None]));
    let changes = rows(vec![Arc::new(steps), Arc::new(ops), Arc::new(ids), Arc::new(prices)], view.change_schema());
    let applied = sink.append(Changes::new(range, vec![changes])?).await?;
    println!("{uri} stands at step {}: {applied:?}", sink.last_step()?);
    Ok(())
}
