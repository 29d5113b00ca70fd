# Variogram and kriging by gstat: Rscript kriging.R rows.csv new.csv, prints JSON.
suppressMessages({library(gstat); library(sp)})
given <- commandArgs(trailingOnly = TRUE)
rows <- read.csv(given[1]); new <- read.csv(given[2])
coordinates(rows) <- ~ x + y; coordinates(new) <- ~ x + y
v <- variogram(z ~ 1, rows, cutoff = 5, width = 1)
robust <- variogram(z ~ 1, rows, cutoff = 5, width = 1, cressie = TRUE)
north <- variogram(z ~ 1, rows, cutoff = 5, width = 1, alpha = 0, tol.hor = 22.5)
model <- vgm(1.5, "Exp", 2, nugget = 0.2)
simple <- krige(z ~ 1, rows, new, model, beta = 3, debug.level = 0)
ordinary <- krige(z ~ 1, rows, new, model, debug.level = 0)
universal <- krige(z ~ w, rows, new, model, debug.level = 0)
line <- variogramLine(model, dist_vector = c(0.5, 2, 5))
listed <- function(a) paste0("[", paste(sprintf("%.10g", a), collapse = ", "), "]")
cat("{", paste0('"', c(
  "gstat", "R", "pairs", "classical", "robust", "north", "line", "simple mean", "simple variance",
  "ordinary mean", "ordinary variance", "universal mean", "universal variance"), '": ', c(
  paste0('"', packageVersion("gstat"), '"'), paste0('"', getRversion(), '"'),
  listed(v$np), listed(v$gamma), listed(robust$gamma), listed(north$gamma), listed(line$gamma),
  listed(simple$var1.pred), listed(simple$var1.var), listed(ordinary$var1.pred),
  listed(ordinary$var1.var), listed(universal$var1.pred), listed(universal$var1.var)),
  collapse = ", "), "}\n")
