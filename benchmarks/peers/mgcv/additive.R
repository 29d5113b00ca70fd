# mgcv's additive example: Rscript additive.R FAMILY ROWS SEED FOLDER.
# Writes rows.csv, with the terms that made them, and fitted.csv, with the terms found and their
# standard errors at the rows; a table of figures on standard output.
suppressMessages(library(mgcv))
asked <- commandArgs(trailingOnly = TRUE)
family <- asked[1]
set.seed(as.integer(asked[3]))
normal <- family == "gaussian"
made <- gamSim(1, n = as.integer(asked[2]), dist = if (normal) "normal" else family,
               scale = if (normal) 2 else 0.1, verbose = FALSE)
write.csv(made, file.path(asked[4], "rows.csv"), row.names = FALSE)
begun <- proc.time()
model <- gam(y ~ s(x0) + s(x1) + s(x2) + s(x3), family = family, method = "REML", data = made)
took <- proc.time() - begun
found <- predict(model, type = "terms", se.fit = TRUE)
table <- data.frame(found$fit, found$se.fit, f = predict(model))
names(table) <- c(paste0("x", 0:3), paste0("error", 0:3), "f")
write.csv(table, file.path(asked[4], "fitted.csv"), row.names = FALSE)
cat(sprintf("seconds,%.3f\n", took[["user.self"]] + took[["sys.self"]]))
cat(sprintf("deviance,%.8g\n", deviance(model)))
cat(sprintf("edf,%.8g\n", sum(model$edf)))
cat(sprintf("scale,%.8g\n", model$scale))
cat(sprintf("intercept,%.8g\n", coef(model)[[1]]))
cat(sprintf("version,%s\n", packageVersion("mgcv")))
cat(sprintf("R,%s\n", getRversion()))
