"""One step after another: plan, bind, run, sample, commit, hand over."""
