told.figures.forEach((figure, number) => chart(byId(`figure-${number}`), {
  ...figure, series: figure.series.map((s) => ({ ...s, colour: colour(s.colour) })),
}));
document.body.dataset.ready = "yes";
