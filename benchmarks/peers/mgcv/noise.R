# Smooths of noise by mgcv: Rscript noise.R FAMILY FOLDER, of rows.csv there; standard deviations of
# the terms of columns n0 to n5, without and with select, on standard output.
suppressMessages(library(mgcv))
asked <- commandArgs(trailingOnly = TRUE)
rows <- read.csv(file.path(asked[2], "rows.csv"))
formula <- y ~ s(x) + s(z) + s(n0) + s(n1) + s(n2) + s(n3) + s(n4) + s(n5)
for (select in c(FALSE, TRUE)) {
  model <- gam(formula, family = asked[1], method = "REML", select = select, data = rows)
  spread <- apply(predict(model, type = "terms"), 2, sd)[3:8]
  cat(paste(c(select, format(spread, digits = 8)), collapse = ","), "\n")
}
