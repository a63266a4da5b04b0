# Simultaneous 95 % intervals of Tukey's contrasts, block as a factor, of each data set on standard
# input (columns set, contender, block, log), by glht of the package multcomp. Made once, with R
# 4.2.2 and multcomp 1.4-22 of Debian 12:
#
#     PYTHONPATH=lab:lab/tests python -m test_error_rates | Rscript lab/tests/glht.R > lab/tests/glht.csv
suppressMessages(library(multcomp))
set.seed(1)
all <- read.csv(file("stdin"))
all$contender <- factor(all$contender)
all$block <- factor(all$block)
cat("set,one,other,low,high\n")
for (number in unique(all$set)) {
  fitted <- lm(log ~ contender + block, data = all[all$set == number, ])
  found <- confint(glht(fitted, linfct = mcp(contender = "Tukey")))$confint
  for (name in rownames(found)) {
    # A contrast "B - A" is the logarithm of B over A.
    names <- strsplit(name, " - ")[[1]]
    cat(sprintf("%d,%s,%s,%.6f,%.6f\n", number, names[1], names[2], found[name, "lwr"], found[name, "upr"]))
  }
}
