#include "cli/app.hpp"

int main(int argc, char** argv) { return openshell::cli::run(argc, argv); }
