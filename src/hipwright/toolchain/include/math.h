// <math.h>: device math, see hw/math.h.
#pragma once
#include "hw/math.h"
