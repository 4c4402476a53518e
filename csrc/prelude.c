#include "fastgc.h"
