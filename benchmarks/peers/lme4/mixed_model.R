# lme4 on a CSV file: Rscript mixed_model.R FILE FORMULA FAMILY FACTORS, a table on standard output.
suppressMessages(library(lme4))
asked <- commandArgs(trailingOnly = TRUE)
rows <- read.csv(asked[1])
for (name in strsplit(asked[4], ",")[[1]]) rows[[name]] <- factor(rows[[name]])
formula <- as.formula(asked[2])
begun <- proc.time()
if (asked[3] == "gaussian") {
  model <- lmer(formula, data = rows)
} else if (asked[3] == "ordinal") {
  model <- ordinal::clmm(formula, data = rows, link = "probit")
} else {
  model <- glmer(formula, data = rows, family = asked[3])
}
took <- proc.time() - begun
cat(sprintf("seconds,,,%.3f\n", took[["user.self"]] + took[["sys.self"]]))
fixed_effects <- function(model, label) {
  fixed <- coef(summary(model))
  for (name in rownames(fixed)) {
    cat(sprintf("%s,%s,,%.8g,%.8g\n", label, name, fixed[name, 1], fixed[name, 2]))
  }
}
fixed_effects(model, "fixed")
if (!asked[3] %in% c("gaussian", "ordinal")) {
  # Steps to the mode by default end before finite differences have three digits.
  settings <- glmerControl(tolPwrss = 1e-12)
  model <- glmer(formula, data = rows, family = asked[3], control = settings)
  fixed_effects(model, "fixed at the mode")
}
if (asked[3] == "gaussian") {
  tested <- lmerTest::as_lmerModLmerTest(model)
  for (ddf in c("Satterthwaite", if (nrow(rows) <= 2000) "Kenward-Roger")) {
    begun <- proc.time()
    fixed <- coef(summary(tested, ddf = ddf))
    took <- proc.time() - begun
    cat(sprintf("tests,%s,seconds,%.3f\n", ddf, took[["user.self"]] + took[["sys.self"]]))
    for (name in rownames(fixed)) {
      cat(sprintf("df,%s,,%.8g,%.6g\n", name, fixed[name, 2], fixed[name, "df"]))
    }
  }
}
if (asked[3] == "ordinal") {
  parts <- ordinal::VarCorr(model)
  for (name in names(parts)) cat(sprintf("random,%s,,%.8g\n", name, parts[[name]][1, 1]))
  quit()
}
parts <- as.data.frame(VarCorr(model))
for (k in seq_len(nrow(parts))) {
  name <- paste(na.omit(c(parts$var1[k], parts$var2[k])), collapse = " ")
  cat(sprintf("random,%s,%s,%.8g,%.8g\n", parts$grp[k], name, parts$vcov[k], parts$sdcor[k]))
}
cat(sprintf("version,%s,,\n", packageVersion("lme4")))
