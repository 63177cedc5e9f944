//! Columns that `recado_schema` omits, because diesel has tuples of at most 32 columns. In a nested row they are selected
//! like any other column.

/// `omitted_column!(LatePolicy, campaigns.late_policy: Nullable<Jsonb>)` declares a type that selects the column.
macro_rules! omitted_column {
    ($name:ident, $table:ident . $column:ident: $type:ty) => {
        #[derive(Clone, Copy, Debug, diesel::query_builder::QueryId, diesel::expression::ValidGrouping)]
        pub(super) struct $name;

        impl diesel::expression::Expression for $name {
            type SqlType = $type;
        }

        impl diesel::expression::AppearsOnTable<$table::table> for $name {}

        impl diesel::expression::SelectableExpression<$table::table> for $name {}

        impl diesel::query_builder::QueryFragment<diesel::pg::Pg> for $name {
            fn walk_ast<'b>(
                &'b self,
                mut out: diesel::query_builder::AstPass<'_, 'b, diesel::pg::Pg>,
            ) -> diesel::QueryResult<()> {
                out.push_sql(concat!(stringify!($table), ".", stringify!($column)));
                Ok(())
            }
        }
    };
}
pub(crate) use omitted_column;
