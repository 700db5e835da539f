"""One look for all figures: colours that the colour-blind can tell apart, readable at column width."""

import matplotlib

matplotlib.use("Agg")
from cycler import cycler
from matplotlib import pyplot as plt

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]  # Okabe and Ito

plt.rcParams.update(
    {
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "font.size": 11,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "savefig.dpi": 150,
        "figure.constrained_layout.use": True,
    }
)
