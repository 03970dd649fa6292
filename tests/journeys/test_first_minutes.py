"""Somebody installs attnlab, trains the first model, and looks at it."""


def test_a_first_run_says_where_its_report_is_and_the_report_opens(home, visit):
    answer = home.run("attnlab run sorting")
    assert "runs/sorting/report.html" in answer.out
    page = visit(home.here / "runs/sorting/report.html")
    page.get_by_role("heading", level=1).wait_for()


def test_a_cell_in_a_live_kernel_answers(kernel):
    (output,) = kernel("1 + 1")
    assert output["data"]["text/plain"] == "2"


def test_nbconvert_makes_a_page(notebook, visit):
    page = visit(notebook(["print('hello from a cell')"]), elsewhere=True)
    page.get_by_text("hello from a cell", exact=True).wait_for()


def test_the_lab_opens(lab, visit):
    visit(lab()).get_by_role("heading").first.wait_for()
