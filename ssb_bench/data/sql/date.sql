-- The 2,556 days from 1992-01-01 with the paper's 17 columns; weeks begin on Sunday, flags are 0 or 1.
-- Seasons and the ten holidays are the generator's; names and week days are the calendar's.
SELECT CAST(year(day) * 10000 + month(day) * 100 + day(day) AS INTEGER) AS d_datekey,
       strftime(day, '%B %-d, %Y') AS d_date, dayname(day) AS d_dayofweek,
       monthname(day) AS d_month, CAST(year(day) AS INTEGER) AS d_year,
       CAST(year(day) * 100 + month(day) AS INTEGER) AS d_yearmonthnum, strftime(day, '%b%Y') AS d_yearmonth,
       CAST(dayofweek(day) + 1 AS INTEGER) AS d_daynuminweek, CAST(day(day) AS INTEGER) AS d_daynuminmonth,
       CAST(dayofyear(day) AS INTEGER) AS d_daynuminyear, CAST(month(day) AS INTEGER) AS d_monthnuminyear,
       CAST((dayofyear(day) - 1) // 7 + 1 AS INTEGER) AS d_weeknuminyear,
       CASE WHEN month(day) >= 11 THEN 'Christmas' WHEN month(day) >= 9 THEN 'Fall'
            WHEN month(day) >= 5 THEN 'Summer' WHEN month(day) = 4 THEN 'Spring' ELSE 'Winter'
       END AS d_sellingseason,
       CAST(dayofweek(day) = 6 AS INTEGER) AS d_lastdayinweekfl,
       CAST(day = last_day(day) AS INTEGER) AS d_lastdayinmonthfl,
       CAST(month(day) * 100 + day(day) IN (101, 220, 420, 520, 720, 820, 920, 1020, 1120, 1224) AS INTEGER) AS d_holidayfl,
       CAST(dayofweek(day) BETWEEN 1 AND 5 AS INTEGER) AS d_weekdayfl
FROM (SELECT CAST(DATE '1992-01-01' + CAST(n AS INTEGER) AS DATE) AS day FROM range($days) AS days(n))
ORDER BY day
