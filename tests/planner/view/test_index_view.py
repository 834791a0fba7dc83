"""An index view of ten rows (`tests.planner.ten_rows`): row groups as numbers, and what is known of them as arrays."""

from pyiceberg.catalog.sql import SqlCatalog

from puffin_index.data.data_table import DataFile, list_data_files
from tests.planner.ten_rows import view_of_ten_rows


def test_a_file_that_is_not_the_one_that_was_indexed_has_no_row_groups(local_catalog: SqlCatalog) -> None:
    view = view_of_ten_rows(local_catalog)
    (file,) = list_data_files(local_catalog.load_table("ns.t"))

    def numbers(**changes: object) -> range | None:
        own = {name: getattr(file, name) for name in DataFile.__dataclass_fields__}
        return view.row_groups_of(DataFile(**(own | changes)))

    assert numbers() == range(5)
    assert numbers(file_size=file.file_size + 1) is None
    assert numbers(record_count=11) is None
    assert numbers(path="s3://elsewhere/file.parquet") is None
