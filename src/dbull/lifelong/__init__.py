"""Algorithm 1 of the paper, corrected: networks and mixture learned together, one data set after another.

`learn` takes the state that earlier data sets left, the rows of a new one and the settings, and returns the
new state with a report of what was done. The state given is never changed; of rows nothing is kept but what
docs/privacy.md says.

    state, report = yield from learn(state, rows, settings, augment)       progress is yielded on the way

The hops of one arrival, in order, and the module of each:

    state       everything that a learner knows between two data sets
    settings    how a data set is learned: training, graph, past and mixture, each handed whole to its part
    novelty     which rows may change what was learned: near, far, outliers
    past        imprints of rows that are gone; replay drawn from them; statistics that follow the encoder
    neighbourhood   the graph of the rows in memory, and codes laid out along it;
    index, layout   the same for many rows
    training    epochs of gradient steps on the networks, the mixture held fixed;
    objective   the terms of the bound that they climb
    codes       the mixture on the codes: search(fit, codes) -> fit
    folding     newborn components are placed; fold_in(state, fit, arrival) -> (state, report), once;
    groups      by what newborns join an old cluster or each other
    inference   answers about rows: codes, values, bounds
    few_rows    rows that wait until they are enough: as means of groups
    beginning   while a stream is young, all of it again from nothing, on means of what came before
    learn       all of it, in the order of its docstring
"""
