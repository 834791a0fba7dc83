package main

import (
	"math"
	"slices"
	"sort"
)

// facts are what a decoded row group tells of its statistics.
type facts struct {
	rows, nulls int
	keys        []key
	isOnceARow  bool // statistics may count a key of a row several times, which are here once
}

// proveStatistics compares the statistics of a column with its rows.
func proveStatistics(statistics batch, groups []rowGroup) {
	require(statistics.rows == len(groups), "rows of statistics")
	isFloating := statistics.metadata["value-type"] == "float" || statistics.metadata["value-type"] == "double"
	for group, decoded := range groups {
		own := decoded.facts()
		keys := own.keys
		sort.Slice(keys, func(i, j int) bool { return keys[i].compare(keys[j]) < 0 })
		distinct := slices.Compact(slices.Clone(keys))
		number := func(name string) int { return int(statistics.columns[name].ints[group]) }
		require(number("row_count") == own.rows, "row count of row group %d", group)
		require(number("null_count") == own.nulls, "NULLs of row group %d", group)
		nans := 0
		for _, k := range keys {
			if isFloating && k.number == floatKey(math.NaN()) {
				nans++
			}
		}
		isDue := number("nan_count") == nans || own.isOnceARow && nans > 0 && number("nan_count") > nans
		require(isDue, "NaNs of row group %d", group)
		require(number("distinct_count") == len(distinct), "distinct keys of row group %d", group)
		quantiles := quantilesOf(statistics.columns["quantiles"], group)
		if len(keys) == 0 {
			require(len(quantiles) == 0 && !statistics.columns["minimum"].valid[group], "statistics without a key")
			continue
		}
		require(keyOf(statistics.columns["minimum"], group) == keys[0], "minimum of row group %d", group)
		require(keyOf(statistics.columns["maximum"], group) == keys[len(keys)-1], "maximum of row group %d", group)
		require(len(quantiles) == 32, "%d quantiles", len(quantiles))
		if own.isOnceARow {
			proveRanks(quantiles, distinct)
			continue
		}
		for i, quantile := range quantiles {
			rank := int(math.RoundToEven(float64(i) * float64(len(keys)-1) / 31))
			require(quantile == keys[rank], "quantile %d of row group %d", i, group)
		}
	}
}

// proveRanks requires that quantiles are some of the keys, from the least to the greatest: how often each occurs is not
// known.
func proveRanks(quantiles, distinct []key) {
	require(quantiles[0] == distinct[0] && quantiles[31] == distinct[len(distinct)-1], "the ends of quantiles")
	next := 0
	for _, quantile := range quantiles {
		for next < len(distinct) && distinct[next] != quantile {
			next++
		}
		require(next < len(distinct), "quantiles that do not ascend, or are no keys")
	}
}

func keyOf(a *array, i int) key {
	if a.bytes != nil || a.ints == nil {
		return key{text: string(a.bytes[i])}
	}
	return key{number: a.ints[i]}
}

func quantilesOf(lists *array, group int) []key {
	var found []key
	for i := lists.bounds[group]; i < lists.bounds[group+1]; i++ {
		found = append(found, keyOf(lists.child, i))
	}
	return found
}
